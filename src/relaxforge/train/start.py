"""What a trainer process is told first."""

from __future__ import annotations

from dataclasses import dataclass

from relaxforge.train.config import TrainConfig


@dataclass(frozen=True, slots=True)
class TrainerStart:
    """``model_path`` is a Hugging Face folder, ``resume_from`` a checkpoint folder or ``None``."""

    model_path: str
    config: TrainConfig
    resume_from: str | None = None
