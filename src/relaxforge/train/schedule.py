"""The learning rate as a function of the optimiser step."""

from __future__ import annotations

import math

from relaxforge.train.config import TrainConfig


def learning_rate(config: TrainConfig, iteration: int) -> float:
    """Learning rate of optimiser step ``iteration`` (from 0): linear warm-up, then the configured course.

    Linear and cosine go from ``lr`` at the end of the warm-up to ``min_lr`` at ``lr_decay_iters`` and stay there.
    """
    warmup = config.lr_warmup_iters
    if iteration < warmup:
        return config.lr * (iteration + 1) / warmup
    if config.lr_decay_style == "constant" or config.lr_decay_iters is None:
        return config.lr
    done = min((iteration - warmup) / (config.lr_decay_iters - warmup), 1.0)
    left = 1.0 - done if config.lr_decay_style == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return config.min_lr + (config.lr - config.min_lr) * left
