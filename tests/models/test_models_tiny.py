"""The tiny model: real in every respect but what it says."""

import json
import subprocess
import sys

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from relaxforge.models import tiny

SPECIAL = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("tiny")
    tiny.write(target)
    return target


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def test_it_is_a_model_of_under_a_million_parameters_that_fits_its_tokenizer(folder, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert sum(parameter.numel() for parameter in model.parameters()) < 1_000_000
    assert model.config.vocab_size == len(tokenizer) < 2000
    assert model.config.max_position_embeddings >= 4096
    assert tokenizer.eos_token_id == model.generation_config.eos_token_id == SPECIAL["<|im_end|>"]


def test_the_same_bytes_come_out_every_time(folder, tmp_path):
    code = "import sys, pathlib; from relaxforge.models import tiny; tiny.write(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        file.name: file.read_bytes() for file in folder.iterdir()
    }


@pytest.mark.parametrize("text", ["héllo 漢字 🎉", "  12+30 = 42\n", "", "a\tb\r\n\x00", "<|im_end|>", "<tool_call>"])
def test_every_text_survives_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_are_single_ids(tokenizer):
    assert {token: tokenizer.encode(token) for token in SPECIAL} == {
        token: [number] for token, number in SPECIAL.items()
    }


def render(tokenizer, *messages, **kwargs):
    return tokenizer.apply_chat_template(list(messages), tokenize=False, **kwargs)


def test_the_template_is_chatml(tokenizer):
    text = render(
        tokenizer, {"role": "system", "content": "S"}, {"role": "user", "content": "U"}, add_generation_prompt=True
    )
    assert text == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"


def test_the_template_renders_tools_calls_and_their_results(tokenizer):
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    text = render(
        tokenizer,
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": [call, call]},
        {"role": "tool", "content": "2"},
        tools=[tool],
    )
    head, *turns = text.split("<|im_start|>")[1:]
    assert json.dumps(tool) in head
    wanted = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    assert turns[1] == f"assistant\n<think>\nhm\n</think>\n\nso\n{wanted}\n{wanted}<|im_end|>\n"
    assert turns[2] == "user\n<tool_response>\n2\n</tool_response><|im_end|>\n"


def test_building_it_needs_neither_torch_nor_transformers(tmp_path):
    code = (
        "import sys; from relaxforge.models.resolve import resolve; resolve('tiny', sys.argv[1]);"
        "sys.exit(bool({'torch', 'transformers', 'safetensors'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == 0
