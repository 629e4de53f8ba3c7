"""Reading what a run left behind: the Sessions of ``rollouts/*.jsonl``, nothing else."""

from __future__ import annotations

import difflib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from relaxforge.core.errors import ConfigError

SCHEMA_VERSION = 1
"""Version of the dump that this release shows (``rollout/record.py`` writes it; importing that takes a second)."""


class FailureRow(msgspec.Struct, frozen=True):
    category: str = ""
    message: str = ""


class TokenRow(msgspec.Struct, frozen=True):
    sampled: int = 0
    trained: int = 0


class SessionRow(msgspec.Struct, frozen=True):
    """What the list shows of one Session; every other field of its dump line stays unparsed."""

    session_id: str
    rollout_id: int
    mode: str
    status: str
    turns: int
    reward: float | None = None
    drop_reason: str | None = None
    failure: FailureRow | None = None
    tokens: TokenRow = TokenRow()
    duration_s: dict[str, float | None] = {}


_rows = msgspec.json.Decoder(SessionRow)


def dump_files(run_dir: Path) -> list[Path]:
    """The dump files of a run, in the order of its steps. Errors: ``ConfigError`` when the folder holds none."""
    if not run_dir.is_dir():
        raise ConfigError(f"{run_dir}: no such run folder")
    pattern = Path(_dump_pattern(run_dir).replace("{rollout_id}", "*"))
    found = (path for path in pattern.parent.glob(pattern.name) if path.is_file())
    files = sorted(found, key=lambda path: (not path.stem.isdigit(), _number(path)))
    if not files:
        raise ConfigError(f"{run_dir} holds no finished Session yet (looked for {pattern})")
    return files


def sessions(run_dir: Path) -> Iterator[SessionRow]:
    """Every ended Session of the run, oldest step first."""
    for path in dump_files(run_dir):
        yield from (row for row, _ in _rows_of(path))


def find_session(run_dir: Path, session_id: str) -> dict[str, Any]:
    """The dump line of one Session. Errors: ``ConfigError`` with the nearest id."""
    seen = []
    for path in dump_files(run_dir):
        for row, line in _rows_of(path):
            if row.session_id == session_id:
                return _whole(line, path)
            seen.append(row.session_id)
    near = difflib.get_close_matches(session_id, seen, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"{run_dir} has no Session {session_id}{hint}")


def run_settings(run_dir: Path) -> dict[str, Any]:
    """The resolved configuration of the run, empty when it left none that can be read."""
    path = run_dir / "config.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        _warn(f"{path} cannot be read: {error}")
        return {}


def _dump_pattern(run_dir: Path) -> str:
    return str(run_settings(run_dir).get("save_debug_rollout_data") or run_dir / "rollouts" / "{rollout_id}.jsonl")


def _rows_of(path: Path) -> Iterator[tuple[SessionRow, bytes]]:
    """What can be read of a dump file, with its lines. A damaged line costs only itself, and is named."""
    for number, line in enumerate(_lines(path), start=1):
        try:
            yield _rows.decode(line), line
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _warn(f"{path}:{number} is no Session and is left out: {error}")


def _whole(line: bytes, path: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(line)
    if found.get("schema_version") != SCHEMA_VERSION:
        raise ConfigError(
            f"{path} was written by another release (schema_version {found.get('schema_version')}, this one reads "
            f"{SCHEMA_VERSION}); use that release to show a Session of it"
        )
    return found


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            # A run that was killed while it wrote leaves one line without an end; everything before it counts.
            if line.endswith(b"\n"):
                yield line


def _warn(text: str) -> None:
    sys.stderr.write(f"warning: {text}\n")


def _number(path: Path) -> tuple[int, str]:
    return (int(path.stem) if path.stem.isdigit() else 0, path.name)
