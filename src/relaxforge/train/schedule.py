"""The learning rate as a function of the optimiser step."""

from __future__ import annotations

import math
from dataclasses import replace

from relaxforge.core.errors import ConfigError
from relaxforge.train.config import TrainConfig


def learning_rate(config: TrainConfig, iteration: int) -> float:
    """Learning rate of optimiser step ``iteration`` (from 0): linear warm-up, then the configured course.

    Linear and cosine go from ``lr`` at the end of the warm-up to ``min_lr`` at ``lr_decay_iters`` and stay there.
    Errors: ``ConfigError`` where they do not know that step, see ``with_horizon``.
    """
    warmup = config.lr_warmup_iters
    if iteration < warmup:
        return config.lr * (iteration + 1) / warmup
    if config.lr_decay_style == "constant":
        return config.lr
    if config.lr_decay_iters is None:
        raise ConfigError(f"--lr-decay-style {config.lr_decay_style} needs --lr-decay-iters")
    done = min((iteration - warmup) / (config.lr_decay_iters - warmup), 1.0)
    left = 1.0 - done if config.lr_decay_style == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return config.min_lr + (config.lr - config.min_lr) * left


def with_horizon(config: TrainConfig, rollout_steps: int, sessions: int) -> TrainConfig:
    """``config`` with a decay that ends with the last optimiser step of a run, unless it says where.

    ``rollout_steps`` of ``sessions`` each. Errors: ``ConfigError`` when the warm-up takes as long as the run.
    """
    if config.lr_decay_style == "constant" or config.lr_decay_iters is not None:
        return config
    iterations = rollout_steps * -(-sessions // (config.global_batch_size or sessions))
    if iterations <= config.lr_warmup_iters:
        raise ConfigError(
            f"--lr-warmup-iters {config.lr_warmup_iters} leaves nothing of the {iterations} optimiser steps of this "
            f"run for --lr-decay-style {config.lr_decay_style}"
        )
    return replace(config, lr_decay_iters=iterations)
