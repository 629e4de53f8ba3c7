"""Checkpoints: complete or absent. Written beside, synced, then renamed; the newest ones are kept."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.core.ports import Learner

STATE_FILE = "run_state.json"
PREFIX = "step_"


@dataclass(frozen=True, slots=True)
class RunState:
    """Where a Run stands: ``next_rollout`` is the step to do next.

    ``position`` is the cursor of the dataset, ``unconsumed`` the rows that were taken but belong to no finished step,
    ``next_group`` the number of the next Group, ``weight_version`` that of the saved weights.
    """

    next_rollout: int
    position: dict[str, int]
    next_group: int
    weight_version: int
    unconsumed: list[int] = field(default_factory=list)


async def write_checkpoint(folder: Path, state: RunState, learner: Learner, keep: int) -> Path:
    """Save model, optimiser and ``state`` as ``step_<n>``, then remove all but the newest ``keep``.

    Errors: ``StorageError``, ``TrainError``.
    """
    final = folder / f"{PREFIX}{state.next_rollout}"
    unfinished = folder / f".{final.name}.unfinished"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        await learner.save(str(unfinished))
        (unfinished / STATE_FILE).write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")
        _sync(unfinished)
        if final.exists():
            shutil.rmtree(final)
        unfinished.rename(final)
        _sync_folder(folder)
        for old in complete_checkpoints(folder)[:-keep]:
            shutil.rmtree(old)
    except OSError as error:
        raise StorageError(f"checkpoint {final} cannot be written: {error.strerror or error}") from error
    return final


def complete_checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    found = [path for path in folder.glob(f"{PREFIX}*") if (path / STATE_FILE).exists()]
    return sorted(found, key=lambda path: int(path.name.removeprefix(PREFIX)))


def find_checkpoint(resume: str, folder: Path) -> Path:
    """The checkpoint that ``--resume`` names. Errors: ``ConfigError`` saying what there is."""
    if resume == "latest":
        if complete := complete_checkpoints(folder):
            return complete[-1]
        raise ConfigError(f"--resume latest: {folder} has no complete checkpoint; leave --resume out to start anew")
    path = Path(resume)
    if not (path / STATE_FILE).exists():
        raise ConfigError(f"--resume {resume}: no complete checkpoint there ({STATE_FILE} is missing)")
    return path


def read_state(checkpoint: Path) -> RunState:
    """The ``RunState`` of a complete checkpoint. Errors: ``ConfigError`` when it is not readable."""
    try:
        values: dict[str, Any] = json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))
        return RunState(**values)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"--resume {checkpoint}: {STATE_FILE} is not readable: {error}") from error


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
