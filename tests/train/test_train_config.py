"""Settings say what is wrong with them; the learning rate follows its course."""

from __future__ import annotations

from typing import Any

import pytest

from relaxforge.core.errors import ConfigError
from relaxforge.train.config import TrainConfig
from relaxforge.train.schedule import learning_rate, with_horizon


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


@pytest.mark.parametrize(
    ("settings", "horizon"),
    [
        ({"lr_decay_style": "linear"}, 10),
        ({"lr_decay_style": "cosine", "global_batch_size": 3}, 30),
        ({"lr_decay_style": "linear", "lr_decay_iters": 4}, 4),
        ({"lr_decay_style": "constant"}, None),
    ],
)
def test_a_decay_that_says_no_end_ends_with_the_run(settings: dict[str, Any], horizon: int | None) -> None:
    config = with_horizon(TrainConfig(lr=1.0, **settings), rollout_steps=10, sessions=8)
    assert config.lr_decay_iters == horizon
    if horizon is not None:
        assert learning_rate(config, horizon - 1) > learning_rate(config, horizon) == 0.0


def test_a_decay_needs_an_end_and_a_run_that_is_longer_than_the_warm_up() -> None:
    with pytest.raises(ConfigError, match="--lr-decay-style linear needs --lr-decay-iters"):
        learning_rate(TrainConfig(lr_decay_style="linear"), 0)
    config = TrainConfig(lr_decay_style="linear", lr_warmup_iters=10)
    with pytest.raises(ConfigError, match="leaves nothing of the 10 optimiser steps"):
        with_horizon(config, rollout_steps=10, sessions=8)
