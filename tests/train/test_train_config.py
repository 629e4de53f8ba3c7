"""Settings say what is wrong with them; the learning rate follows its course."""

from __future__ import annotations

from typing import Any

import pytest

from relaxforge.core.errors import ConfigError
from relaxforge.train.config import TrainConfig
from relaxforge.train.schedule import learning_rate


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"lora_rank": 8}, "--lora-rank: LoRA is not available yet"),
        ({"lr": 0.0}, "--lr must be > 0, got 0.0"),
        ({"lr": float("inf")}, "--lr must be a finite number, got inf"),
        ({"entropy_coef": float("nan")}, "--entropy-coef must be a finite number, got nan"),
        ({"seed": 2**64}, "--seed must be a number of 64 bits"),
        ({"eps_clip": 1.0}, "--eps-clip must be below 1, got 1.0"),
        ({"eps_clip_c": 1.0}, "--eps-clip-c must be > 1, got 1.0"),
        ({"adam_beta2": 1.0}, r"--adam-beta2 must be in \[0, 1\), got 1.0"),
        ({"clip_grad": -1.0}, "--clip-grad must be >= 0, got -1.0"),
        ({"global_batch_size": 0}, "--global-batch-size must be at least 1, got 0"),
        ({"kl_loss_coef": 0.1}, "--kl-loss-coef has no effect without --use-kl-loss"),
        ({"lr_decay_style": "linear"}, "--lr-decay-style linear needs --lr-decay-iters"),
        ({"lr_decay_style": "linear", "lr_decay_iters": 5, "lr_warmup_iters": 5}, "must lie behind --lr-warmup-iters"),
        ({"lr_decay_style": "cosine", "lr_decay_iters": 5, "min_lr": 1.0}, "--min-lr must be at most --lr"),
    ],
)  # fmt: skip
def test_a_bad_setting_is_refused_with_its_flag(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TrainConfig(**setting)


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.775, 0.55, 0.325, 0.1]),
        ("cosine", [0.5, 1.0, 1.0, 0.86819, 0.55, 0.23180, 0.1]),
    ],
)
def test_learning_rate_warms_up_and_decays(style: Any, expected: list[float]) -> None:
    config = TrainConfig(lr=1.0, min_lr=0.1, lr_warmup_iters=2, lr_decay_iters=6, lr_decay_style=style)
    assert [learning_rate(config, i) for i in range(7)] == pytest.approx(expected, abs=1e-5)
    assert learning_rate(config, 100) == pytest.approx(expected[-1])
