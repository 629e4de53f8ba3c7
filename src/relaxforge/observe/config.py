"""What a run tells about itself, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ObserveConfig:
    log_level: Literal["debug", "info", "warning"] = "info"
    """Least severe event written to events.log; the console shows warnings and errors only."""

    tensorboard: bool = True
    """Write metrics for TensorBoard into the run folder, where the tensorboard package is installed."""

    use_wandb: bool = False
    """Send metrics to Weights & Biases."""

    wandb_project: str = "relaxforge"
    """Weights & Biases project."""

    wandb_mode: Literal["online", "offline", "disabled"] = "online"
    """How Weights & Biases runs; `offline` writes into the run folder only."""
