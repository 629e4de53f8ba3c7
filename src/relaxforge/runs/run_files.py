"""Reading a run directory that may still grow: whole lines behind a remembered place."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaxforge.core.errors import ConfigError

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines of one file, without their ends; ``end`` is the place behind them."""

    lines: tuple[bytes, ...]
    end: int


class RunFiles:
    """The evidence that a run keeps in its own files. Errors: ``ConfigError`` for a folder without a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        configurations = sorted(path.glob("config*.toml"), key=lambda file: (len(file.name), file.name))
        if not configurations:
            raise ConfigError(f"{path} is no run directory; it has no config.toml")
        self.settings = _settings(configurations[-1])
        """The resolved configuration of the newest start; secret values are redacted."""
        self._dumps = [Path(str(path / "rollouts" / "*.jsonl"))]
        for file in configurations:  # each start may have named another place
            if pattern := _settings(file).get("save_debug_rollout_data"):
                self._dumps.append(Path(pattern.replace("{rollout_id}", "*")))

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def dumps(self) -> list[Path]:
        """Every dump file, oldest step first, each with the evaluation before it."""
        found = {file for pattern in self._dumps for file in pattern.parent.glob(pattern.name) if file.is_file()}
        return sorted(found, key=_step)

    def log_of(self, session_id: str) -> Path:
        return self.path / "sessions" / session_id / "run.log"

    def name_of(self, file: Path) -> str:
        """What a file is called where places are remembered: the same wherever the run directory lies."""
        return str(file.relative_to(self.path)) if file.is_relative_to(self.path) else f"{file.parent.name}/{file.name}"

    def unread(self, offsets: dict[str, int]) -> int:
        """Whole lines behind the places in ``offsets``, over all files."""
        return sum(_line_ends(file, offsets.get(self.name_of(file), 0)) for file in [*self.dumps(), self.metrics])


def read_lines(file: Path, start: int, most_bytes: int, most_lines: int) -> Lines:
    """The next whole lines behind ``start``, at least one if there is one. A line without an end waits for it."""
    lines: list[bytes] = []
    end = start
    try:
        with file.open("rb") as opened:
            opened.seek(start)
            while len(lines) < most_lines and end - start < most_bytes and (line := opened.readline()).endswith(b"\n"):
                lines.append(line[:-1])
                end += len(line)
    except FileNotFoundError:
        pass  # metrics.jsonl comes with the first step
    return Lines(tuple(lines), end)


def _settings(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None


def _step(file: Path) -> tuple[int, bool, str]:
    number = file.stem.rpartition("_")[2]
    return int(number) if number.isdecimal() else 0, file.stem == number, file.name


def _line_ends(file: Path, start: int) -> int:
    return sum(block.count(b"\n") for block in _blocks(file, start))


def _blocks(file: Path, start: int) -> Iterator[bytes]:
    try:
        with file.open("rb") as opened:
            opened.seek(start)
            while block := opened.read(_BLOCK):
                yield block
    except FileNotFoundError:
        return
