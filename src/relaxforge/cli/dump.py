"""Reading what a run left behind: the Sessions of ``rollouts/*.jsonl``, nothing else."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from relaxforge.core.errors import ConfigError


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
    files = sorted(pattern.parent.glob(pattern.name), key=lambda path: (not path.stem.isdigit(), _number(path)))
    if not files:
        raise ConfigError(f"{run_dir} holds no finished Session yet (looked for {pattern})")
    return files


def sessions(run_dir: Path) -> Iterator[SessionRow]:
    """Every ended Session of the run, oldest step first."""
    for path in dump_files(run_dir):
        for line in _lines(path):
            yield _rows.decode(line)


def find_session(run_dir: Path, session_id: str) -> dict[str, Any]:
    """The dump line of one Session. Errors: ``ConfigError`` with the nearest id."""
    seen = []
    for path in dump_files(run_dir):
        for line in _lines(path):
            row = _rows.decode(line)
            if row.session_id == session_id:
                found: dict[str, Any] = msgspec.json.decode(line)
                return found
            seen.append(row.session_id)
    near = difflib.get_close_matches(session_id, seen, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"{run_dir} has no Session {session_id}{hint}")


def run_settings(run_dir: Path) -> dict[str, Any]:
    """The resolved configuration of the run, empty when it left none."""
    path = run_dir / "config.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _dump_pattern(run_dir: Path) -> str:
    return str(run_settings(run_dir).get("save_debug_rollout_data") or run_dir / "rollouts" / "{rollout_id}.jsonl")


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            # A run that was killed while it wrote leaves one line without an end; everything before it counts.
            if line.endswith(b"\n"):
                yield line


def _number(path: Path) -> tuple[int, str]:
    return (int(path.stem) if path.stem.isdigit() else 0, path.name)
