"""What stood in ``RELAX_OUTPUT_JSON``: nothing, one object, or one JSON record per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relaxforge.agents.text import read_regular
from relaxforge.core.errors import AgentError
from relaxforge.core.sessions import AgentOutput, ExportRecord, FailureCategory, Reward
from relaxforge.core.strict_json import loads

MAX_OUTPUT_BYTES = 64 << 20

_IMPLICIT_KEYS = ("metadata", "reward")
_RECORD_KEYS = ("name", "messages", "tools", "chat_template_kwargs", "metadata", "reward")
_SHAPES = "write one object with metadata and reward, or JSONL with one record a line"
_REWARDS = "it must be a finite number, an object or null"


class _UnfitError(Exception):
    """What is wrong with a piece of output, without the place."""


def read_output(path: Path) -> AgentOutput:
    """The output of a Session whose agent has ended. Errors: ``AgentError`` ``bad_output``. Reads up to 64 MiB."""
    try:
        data = read_regular(path, MAX_OUTPUT_BYTES + 1) or b""
    except OSError as error:
        raise _bad_output("", f"it cannot be read: {error}") from error
    if len(data) > MAX_OUTPUT_BYTES:
        raise _bad_output("", f"more than {MAX_OUTPUT_BYTES >> 20} MiB; export fewer or shorter contexts")
    return parse_output(data)


def parse_output(data: bytes) -> AgentOutput:
    """An output file's content.

    Blank means no output. One object without ``messages`` goes with the implicit export; an object with ``messages``
    is one explicit record, and so is every line of JSONL. Errors: ``AgentError`` ``bad_output`` with the line.
    """
    text = _decode(data)
    if not text.strip():
        return AgentOutput()
    with _place(""):
        whole = _whole(text)
        if whole is not None:
            return AgentOutput(records=(_record(whole),)) if "messages" in whole else _implicit(whole)
    return AgentOutput(records=_lines(text))


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _bad_output(f" line {line}", "not valid UTF-8") from error


def _whole(text: str) -> dict[str, Any] | None:
    """The text as one object; ``None`` when something follows the first value, as in JSONL."""
    try:
        return _object(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return None
        raise


def _lines(text: str) -> tuple[ExportRecord, ...]:
    records: dict[str, ExportRecord] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        with _place(f" line {number}"):
            record = _record(_object(line))
            if record.name in records:
                raise _UnfitError(f"the name {record.name!r} occurs before; names are unique within a Session")
            records[record.name] = record
    return tuple(records.values())


@contextmanager
def _place(where: str) -> Iterator[None]:
    """Turn what is wrong with a piece of output into ``bad_output`` that says where it stands."""
    try:
        yield
    except json.JSONDecodeError as error:
        what = f"not valid JSON: {error.msg} (column {error.colno}); was it written whole?"
        raise _bad_output(where or f" line {error.lineno}", what) from error
    except (ValueError, _UnfitError) as error:
        raise _bad_output(where, str(error)) from error


def _bad_output(where: str, what: str) -> AgentError:
    return AgentError(f"RELAX_OUTPUT_JSON{where}: {what}", FailureCategory.BAD_OUTPUT)


def _object(text: str) -> dict[str, Any]:
    value = loads(text)
    if not isinstance(value, dict):
        raise _UnfitError(f"it is {_kind(value)}; {_SHAPES}")
    return value


def _implicit(given: dict[str, Any]) -> AgentOutput:
    return AgentOutput(
        metadata=_mapping(given, "metadata"),
        reward=_reward(given.get("reward")),
        ignored_keys=tuple(sorted(given.keys() - set(_IMPLICIT_KEYS))),
    )


def _record(given: dict[str, Any]) -> ExportRecord:
    if unknown := sorted(given.keys() - set(_RECORD_KEYS)):
        raise _UnfitError(f"unknown keys {', '.join(map(repr, unknown))}; a record has {', '.join(_RECORD_KEYS)}")
    name = given.get("name")
    if not isinstance(name, str) or not name.strip():
        raise _UnfitError(f"the name is {_kind(name)}; a record needs a non-empty string, unique within its Session")
    if not (messages := _objects(given, "messages")):
        raise _UnfitError(f"record {name!r} has no messages; it needs the complete history of its context")
    return ExportRecord(
        name=name,
        messages=messages,
        tools=_objects(given, "tools"),
        chat_template_kwargs=_mapping(given, "chat_template_kwargs"),
        metadata=_mapping(given, "metadata"),
        reward=_reward(given.get("reward")),
    )


def _objects(given: dict[str, Any], key: str) -> tuple[dict[str, Any], ...]:
    value = given.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise _UnfitError(f"{key} is {_kind(value)}; it must be a list of objects")
    return tuple(value)


def _mapping(given: dict[str, Any], key: str) -> dict[str, Any]:
    value = given.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _UnfitError(f"{key} is {_kind(value)}; it must be an object")
    return value


def _reward(value: Any) -> Reward:
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnfitError(f"the reward is {_kind(value)}; {_REWARDS}")
    try:
        return float(value)
    except OverflowError as error:
        raise _UnfitError(f"the reward is too large; {_REWARDS}") from error


def _kind(value: Any) -> str:
    """The value's JSON type, or the value itself where it is short."""
    if isinstance(value, list | dict):
        return "an array" if isinstance(value, list) else "an object"
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."
