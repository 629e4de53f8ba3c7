"""The trainer process: ``python -m relaxforge.train.process``, driven by ``TrainerProcess`` in main."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from relaxforge.core.errors import RelaxForgeError, TrainError
from relaxforge.core.samples import TrainBatch
from relaxforge.ipc.child import ChildChannel
from relaxforge.ipc.codec import shape
from relaxforge.train.start import TrainerStart
from relaxforge.train.trainer import Trainer


def main() -> None:
    """Answer calls until main closes the channel, which ends the process."""
    transformers_logging.disable_progress_bar()
    channel = ChildChannel()
    trainer: Trainer | None = None
    for frame in channel:
        try:
            if frame.method == "start":
                start = shape(frame.body, TrainerStart)
                trainer = Trainer(start.model_path, start.config, start.resume_from)
                answer: Any = trainer.describe()
            elif trainer is None:
                raise TrainError(f"{frame.method} was called before start")
            else:
                answer = _answer(trainer, frame.method, frame.body)
        except Exception as error:  # noqa: BLE001 - the process boundary: main gets every error as an answer
            channel.fail(frame, _explained(error))
        else:
            channel.reply(frame, answer)


def _answer(trainer: Trainer, method: str, body: Any) -> Any:
    if method == "train":
        return trainer.train(shape(body, TrainBatch))
    if method == "publish":
        return trainer.publish(body)
    if method == "save":
        return trainer.save(body)
    raise TrainError(f"unknown call {method}")


def _explained(error: Exception) -> Exception:
    """The error as main shall show it; what nobody foresaw leaves its traceback in the log."""
    if isinstance(error, torch.OutOfMemoryError):
        return TrainError(f"out of memory; lower --max-tokens-per-gpu ({error})")
    if not isinstance(error, RelaxForgeError):
        traceback.print_exception(error, file=sys.stderr)
    return error


if __name__ == "__main__":
    main()
