"""A random Llama of 160 thousand parameters with its own ChatML tokenizer: no download, no torch, always the same.

It answers with noise, which is what dry runs and tests need: every id, template and limit is real.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from relaxforge.models.once import build_once

LAYOUT = 1
"""Part of the folder's name; raise it when a change here writes other bytes than before."""

SEED = 20260
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCABULARY = 512
CONTEXT = 32768
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 160, 3, 4, 2, 16

CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- 'You may call these functions:\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '\\n</tools>\\nA call is a JSON object in <tool_call></tool_call> with name and arguments.<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content %}
            {{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content or '' }}
        {%- for call in message.tool_calls or [] %}
            {%- set function = call.function or call %}
            {%- if message.content or not loop.first %}
                {{- '\\n' }}
            {%- endif %}
            {{- '<tool_call>\\n{"name": ' + (function.name | tojson) + ', "arguments": ' }}
            {{- function.arguments if function.arguments is string else function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

CORPUS = """\
You are a helpful assistant. You are a calculator. Reply with only the final number. What is 12 plus 30? The answer is
42. That is not right, please try again. The user asks a question and the assistant answers it. Use the tool when you
need it: call the function with a name and its arguments, then read the result and say what it means. A system message
comes first, then user and assistant take turns, and each turn ends. Think about the problem step by step, check the
result, and write the number down. {"name": "search", "arguments": {"query": "where is the city"}} {"name": "add",
"arguments": {"a": 1, "b": 2}} <tool_call> </tool_call> <tool_response> </tool_response> <think> </think> <tools>
This one would be there if they had been able to find what they were looking for, but there was nothing left of it.
"""


def folder(cache: Path) -> Path:
    """The folder of the tiny model, written on first use."""
    return build_once(cache / f"tiny-{LAYOUT}", write)


def write(target: Path) -> None:
    """Write tokenizer, configuration and weights into ``target``."""
    _write_tokenizer(target)
    _write_json(target / "config.json", _config())
    ids = {"bos_token_id": None, "eos_token_id": SPECIAL.index("<|im_end|>"), "pad_token_id": 0}
    _write_json(target / "generation_config.json", ids)
    _write_weights(target / "model.safetensors")


def _write_tokenizer(target: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, min_frequency=1, show_progress=False,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(CORPUS.splitlines(), trainer)
    tokenizer.save(str(target / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE, "model_max_length": CONTEXT,
        "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    _write_json(target / "tokenizer_config.json", described)


def _config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32", "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "max_position_embeddings": CONTEXT, "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
        "rope_theta": 100000.0, "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "initializer_range": 0.02, "bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (HIDDEN,)
        yield at + "post_attention_layernorm.weight", (HIDDEN,)
        yield at + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield at + "self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield at + "self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield at + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield at + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.down_proj.weight", (HIDDEN, INNER)
    yield "model.norm.weight", (HIDDEN,)


def _write_weights(path: Path) -> None:
    """A safetensors file by hand: header length (8 bytes, little endian), JSON header, float32 data.

    Format: https://github.com/huggingface/safetensors#format. Norms are ones; the rest is normal with a deviation of
    0.1, wide enough that logits depend on the whole context.
    """
    random = np.random.default_rng(SEED)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    chunks, at = [], 0
    for name, shape in _shapes():
        values = np.ones(shape) if len(shape) == 1 else random.normal(0.0, 0.1, shape)
        data = values.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(data)]}
        chunks.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(chunks))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
