"""The trainer as main sees it: a process of its own, so that no step blocks the event loop."""

from __future__ import annotations

import os
from typing import Any

from relaxforge.core.errors import ConfigError, StorageError, TrainError
from relaxforge.core.samples import TrainBatch, TrainReport
from relaxforge.core.turns import WeightUpdate
from relaxforge.ipc.codec import shape
from relaxforge.ipc.parent import Child, ChildDied, ChildFailed
from relaxforge.train.config import TrainConfig
from relaxforge.train.start import TrainerStart

ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
"""Compute threads that wait sleep instead of spinning: on two busy cores, spinning made a step three times slower.
Model folders are local; nothing is looked up."""

OWN_ERRORS = {error.__name__: error for error in (ConfigError, StorageError, TrainError)}


class TrainerProcess:
    """Implements ``core.ports.Learner``. One call at a time."""

    def __init__(self, child: Child, log_path: str | None) -> None:
        self._child = child
        self._log_path = log_path
        self.description: dict[str, Any] = {}
        """``device``, ``dtype``, ``parameters`` and ``weight_version`` at the start."""

    @classmethod
    async def start(
        cls, model_path: str, config: TrainConfig, *, log_path: str | None = None, resume_from: str | None = None
    ) -> TrainerProcess:
        """Start the process and load the model, or the checkpoint ``resume_from``.

        Errors: ``ConfigError`` when model, checkpoint and settings do not fit, else ``TrainError``.
        """
        child = await Child.start(
            "trainer", "relaxforge.train.process", env={**ENVIRONMENT, **os.environ}, log_path=log_path
        )
        trainer = cls(child, log_path)
        try:
            trainer.description = await trainer._call("start", TrainerStart(model_path, config, resume_from))
        except BaseException:
            await trainer.close()
            raise
        return trainer

    @property
    def pid(self) -> int:
        return self._child.pid

    async def train(self, batch: TrainBatch) -> TrainReport:
        """One rollout step. Errors: ``TrainError``."""
        return shape(await self._call("train", batch), TrainReport)

    async def publish(self, directory: str) -> WeightUpdate:
        """Write the current weights into a folder under ``directory``. Errors: ``StorageError``, ``TrainError``."""
        return shape(await self._call("publish", directory), WeightUpdate)

    async def save(self, directory: str) -> None:
        """Write a checkpoint into ``directory``. Errors: ``StorageError``, ``TrainError``."""
        await self._call("save", directory)

    async def lost(self) -> TrainError:
        """Until the process is gone; the error that says so."""
        how = await self._child.ended()
        return TrainError(
            f"{how}; {self._log_hint()}. See there, mend that and go on from the last checkpoint with --resume latest"
        )

    async def close(self) -> None:
        await self._child.close()

    async def _call(self, method: str, body: Any) -> Any:
        try:
            return await self._child.call(method, body)
        except ChildDied as error:
            raise TrainError(f"{error} during {method}; {self._log_hint()}") from error
        except ChildFailed as error:
            raise self._as_ours(method, str(error)) from error

    def _as_ours(self, method: str, text: str) -> Exception:
        kind, _, message = text.partition(": ")
        if kind in OWN_ERRORS:
            return OWN_ERRORS[kind](message)
        return TrainError(f"trainer: {method} failed: {text}; {self._log_hint()}")

    def _log_hint(self) -> str:
        return f"its log is {self._log_path}" if self._log_path else "it logged to stderr"
