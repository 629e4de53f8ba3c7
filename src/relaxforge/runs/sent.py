"""What of a run has been sent to which workspace, remembered in the run directory."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from relaxforge.core.errors import ConfigError, StorageError

FOLDER = "workspace"


class _State(msgspec.Struct):
    workspace: str
    training_run_id: str = ""
    offsets: dict[str, int] = {}
    refused: list[str] = []


class Sent:
    """How far each file was sent to one workspace. Losing this costs time alone: what comes again is known there.

    ``refused`` names what the workspace will never take.
    """

    def __init__(self, run_dir: Path, workspace: str) -> None:
        folder = run_dir / FOLDER
        self._path = folder / f"{hashlib.sha256(workspace.encode()).hexdigest()[:16]}.json"
        self._state = _State(workspace)
        with suppress(FileNotFoundError, msgspec.DecodeError):  # A damaged one counts as none.
            self._state = msgspec.json.decode(self._path.read_bytes(), type=_State)

    @property
    def offsets(self) -> dict[str, int]:
        return self._state.offsets

    @property
    def refused(self) -> tuple[str, ...]:
        return tuple(self._state.refused)

    def begin(self, training_run_id: str) -> None:
        """Start over if the workspace knows this run under another id than before: it has lost what it had."""
        if self._state.training_run_id != training_run_id:
            self._state = _State(self._state.workspace, training_run_id)
            self._save()

    def advance(self, file: str, end: int, refused: tuple[str, ...] = ()) -> None:
        """Everything of ``file`` before ``end`` is done with."""
        self._state.offsets[file] = end
        self._state.refused.extend(refused)
        self._save()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else sends this run to the same workspace. Errors: ``ConfigError`` when somebody does."""
        self._path.parent.mkdir(exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"another process sends {self._path.parent.parent} to {self._state.workspace}; wait for its end"
                ) from None
            yield

    def _save(self) -> None:
        _write(self._path, msgspec.json.encode(self._state))


def source_key(run_dir: Path) -> str:
    """What this run is called in every workspace, however often it is resumed and wherever its folder is moved."""
    path = run_dir / FOLDER / "source_key"
    with suppress(FileNotFoundError):
        if known := path.read_text(encoding="utf-8").strip():
            return known
    key = f"{run_dir.resolve().name}-{secrets.token_hex(8)}"
    _write(path, key.encode())
    return key


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, whenever the process is killed."""
    try:
        path.parent.mkdir(exist_ok=True)
        half = path.with_suffix(".half")
        half.write_bytes(content)
        os.replace(half, path)  # noqa: PTH105
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}; free some space and send again") from error
