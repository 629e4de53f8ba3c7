"""The run directory: one folder that holds everything about a Run, and the file sink of its evidence."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.observe.lines import LineFile
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.record import dump_line


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths of a Run. ``incarnation`` is 0 at first and counts every later start in the same folder."""

    path: Path
    incarnation: int

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def sessions(self) -> Path:
        return self.path / "sessions"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def events_log(self) -> Path:
        return self.path / "events.log"

    def line(self, outcome: Outcome, rollout_id: int) -> dict[str, Any]:
        """An ended Session of a step of this incarnation, as its dump line."""
        return dump_line(outcome, run_id=self.run_id, incarnation=self.incarnation, rollout_id=rollout_id)

    def dump_path(self, name: str, pattern: str | None) -> Path:
        """Where the dump of ``name`` (a rollout id, or ``eval_<dataset>_<id>``) goes."""
        return Path(pattern.replace("{rollout_id}", name)) if pattern else self.path / "rollouts" / f"{name}.jsonl"


@contextlib.contextmanager
def open_run_directory(path: Path, config_toml: str) -> Iterator[RunDirectory]:
    """Create the folder or continue in it, and hold its lock. Errors: ``ConfigError``, ``StorageError``.

    Every start writes the resolved configuration: ``config.toml``, from the second on ``config-<n>.toml``.
    """
    with contextlib.ExitStack() as held:
        try:
            for folder in ("rollouts", "sessions", "checkpoints", "logs"):
                (path / folder).mkdir(parents=True, exist_ok=True)
            (path / "sessions").chmod(0o700)
            held.enter_context(_locked(path))
            incarnation = len(list(path.glob("config*.toml")))
            name = f"config-{incarnation}.toml" if incarnation else "config.toml"
            (path / name).write_text(config_toml, encoding="utf-8")
        except OSError as error:
            raise StorageError(
                f"the run directory {path} cannot be written: {error.strerror or error}; mend that, or choose another "
                "--run-dir"
            ) from error
        yield RunDirectory(path, incarnation)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with (path / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another run is writing to {path}; wait for it, or choose another --run-dir") from None
        yield


class FileSink:
    """A ``TrialSink`` over the run's own files: one JSON line per ended Session.

    ``mended`` says what to do once whatever kept a line from being written is mended.
    """

    def __init__(self, path: Path, mended: str = "go on with --resume latest") -> None:
        self._path = path
        self._mended = mended
        self._seen: set[str] = set()
        self._file = LineFile(path)

    def append(self, line: dict[str, Any]) -> None:
        if line["session_id"] in self._seen:
            return
        try:
            self._file.append(msgspec.json.encode(line))
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be written: {error.strerror or error}; Session {line['session_id']} is not "
                f"recorded. Mend that and {self._mended}"
            ) from error
        self._seen.add(line["session_id"])

    def close(self) -> None:
        self._file.close()
