"""Steps that an agent notes itself: lines of ``steps.jsonl`` in its Session folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relaxforge.agents.text import mend, read_regular
from relaxforge.core.evidence import TrajectoryStep
from relaxforge.core.strict_json import loads

NAME = "steps.jsonl"
MESSAGE = "message"
MOST_BYTES = 64 << 20


def read_steps(folder: Path, most_bytes: int = MOST_BYTES) -> tuple[TrajectoryStep, ...]:
    """Every line of the file as a step, numbered from 1; never an error.

    A line that is no ``{tool, command, observation}`` object is evidence too: it becomes the observation of a step of
    tool ``message``. What lies beyond ``most_bytes`` is left out, and a last step says so.
    """
    try:
        data = read_regular(folder / NAME, most_bytes + 1) or b""
    except OSError as error:
        return (TrajectoryStep(1, MESSAGE, "", f"{NAME} cannot be read: {error}"),)
    kept = data if len(data) <= most_bytes else data[: data.rfind(b"\n", 0, most_bytes) + 1]
    rows = [_row(line) for line in kept.split(b"\n") if line.strip()]
    if len(data) > most_bytes:
        rows.append((MESSAGE, "", f"{NAME} goes on after its first {len(kept)} bytes; at most {most_bytes} are kept"))
    return tuple(TrajectoryStep(number, *row) for number, row in enumerate(rows, start=1))


def _row(line: bytes) -> tuple[str, str, str]:
    try:
        given = loads(line)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not isinstance(given.get("tool"), str) or not given["tool"]:
        return MESSAGE, "", line.decode("utf-8", "replace")
    return mend(given["tool"]), _text(given.get("command")), _text(given.get("observation"))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return mend(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
