"""Checkpoints: complete or absent. Written beside, synced, then renamed; the ones saved last are kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import msgspec

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.core.ports import Learner

STATE_FILE = "run_state.json"
PREFIX = "step_"

Count = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class RunState:
    """Where a Run stands: ``next_rollout`` is the step to do next.

    ``position`` is the cursor of the dataset, ``unconsumed`` the rows that were taken but belong to no finished step,
    ``next_group`` the number of the next Group, ``weight_version`` that of the saved weights. ``sequence`` counts the
    checkpoints ever saved in the folder: after a resume from an older one, a lower step may be the later checkpoint.
    """

    next_rollout: Count
    position: dict[str, Count]
    next_group: Count
    weight_version: Count
    unconsumed: list[Count] = field(default_factory=list)
    sequence: Count = 0


async def write_checkpoint(folder: Path, state: RunState, learner: Learner, keep: int) -> Path:
    """Save model, optimiser and ``state`` as ``step_<n>``, then remove all but the ``keep`` saved last.

    Errors: ``StorageError``, ``TrainError``.
    """
    final = folder / f"{PREFIX}{state.next_rollout}"
    unfinished = _hidden(final, "unfinished")
    try:
        _remove_leftovers(folder)
        earlier = max((read_state(path).sequence for path in complete_checkpoints(folder)), default=0)
        unfinished.mkdir(parents=True)
        await _fill(unfinished, replace(state, sequence=earlier + 1), learner)
        if final.exists():
            _discard(final)
        unfinished.rename(final)
        _sync_folder(folder)
        for old in complete_checkpoints(folder)[:-keep]:
            _discard(old)
    except OSError as error:
        raise StorageError(
            f"checkpoint {final} cannot be written: {error.strerror or error}; mend that and go on with --resume latest"
        ) from error
    return final


async def _fill(unfinished: Path, state: RunState, learner: Learner) -> None:
    """Write the parts of a checkpoint. Half of one is of no use, and the disk may be full of it: it is removed."""
    try:
        await learner.save(str(unfinished))
        (unfinished / STATE_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")
        _sync(unfinished)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def prepare_folder(folder: Path) -> None:
    """Make the folder of the checkpoints before anything is trained that could not be saved then.

    Errors: ``ConfigError``.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{PREFIX}", dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"--save {folder}: checkpoints cannot be written there: {error.strerror or error}") from error


def complete_checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints in the order in which they were saved. One with an unreadable state is not complete."""
    states: dict[Path, RunState] = {}
    for path in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(ConfigError):
            states[path] = read_state(path)
    return sorted(states, key=lambda path: (states[path].sequence, states[path].next_rollout))


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
        return msgspec.json.decode((checkpoint / STATE_FILE).read_bytes(), type=RunState)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"--resume {checkpoint}: {STATE_FILE} is not readable: {error}") from error


def _hidden(path: Path, what: str) -> Path:
    return path.with_name(f".{path.name}.{what}")


def _discard(path: Path) -> None:
    """Remove a checkpoint so that, at no moment, a part of it looks like a whole one."""
    path.rename(gone := _hidden(path, "discarded"))
    shutil.rmtree(gone)


def _remove_leftovers(folder: Path) -> None:
    """What a killed run left half written or half removed."""
    for path in folder.glob(f".{PREFIX}*"):
        shutil.rmtree(path)


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
