"""Architectures: trees where every layer sees every ancestor, separate rows elsewhere, exact in both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from relaxforge.core.errors import ConfigError
from relaxforge.core.samples import TrainBatch
from relaxforge.train.config import TrainConfig
from relaxforge.train.contexts import optimiser_steps
from relaxforge.train.layout import micro_batches
from relaxforge.train.policy import Policy, device_of, dtype_of, shape_of

SIZES: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, "pad_token_id": None, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip

FAMILIES: dict[str, tuple[PreTrainedConfig, bool]] = {
    "llama": (LlamaConfig(**SIZES), True),
    "qwen2": (Qwen2Config(**SIZES), True),
    "qwen2 with a window": (
        Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=0),
        False,
    ),
    "qwen3": (Qwen3Config(**SIZES), True),
    "mistral": (MistralConfig(**SIZES, sliding_window=None), True),
    "mistral with a window": (MistralConfig(**SIZES, sliding_window=4), False),
    "gemma2": (Gemma2Config(**SIZES, sliding_window=4, query_pre_attn_scalar=8), False),
    "gemma3": (Gemma3TextConfig(**SIZES, sliding_window=4, query_pre_attn_scalar=8), False),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_logprobs_equal_those_of_separate_rows(family: str, make) -> None:
    config, trees = FAMILIES[family]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
    shape = shape_of(model, TrainConfig())
    assert shape.trees == trees
    (contexts,) = optimiser_steps(TrainBatch(0, (make.group(prompt=(8, 9)),), 1.0), TrainConfig())
    expected = []
    for context in contexts:
        ids = torch.from_numpy(context.tokens).long()
        logs = torch.log_softmax(model(ids[None]).logits[0] / 1.3, -1)
        expected += logs[context.positions - 1, ids[context.positions]].tolist()
    batches = micro_batches(contexts, shape)
    actual = [value for batch in batches for value in Policy(model)(batch, 1.3)[0].tolist()]
    assert sorted(actual) == pytest.approx(sorted(expected), rel=1e-6)
    assert (sum(batch.computed_tokens for batch in batches) < sum(len(c.tokens) for c in contexts)) == trees


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="--train-device cuda: no usable GPU here"):
        device_of(TrainConfig(train_device="cuda"))
    assert device_of(TrainConfig()).type == "cpu"


def test_bfloat16_is_chosen_only_where_the_processor_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for capable, expected in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda capable=capable: {"avx512_bf16": capable})
        assert dtype_of(TrainConfig(), torch.device("cpu")) == expected
    assert dtype_of(TrainConfig(train_dtype="bfloat16"), torch.device("cpu")) == torch.bfloat16


def test_the_token_budget_follows_the_device(tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    assert shape_of(model, TrainConfig()).max_tokens == 2048
    assert shape_of(model, TrainConfig(max_tokens_per_gpu=100)).max_tokens == 100
    assert shape_of(model, TrainConfig(use_dynamic_batch_size=False)).max_tokens is None
