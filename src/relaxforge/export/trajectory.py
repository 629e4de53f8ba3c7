"""What one attempt did, step by step, read from its dump line: ``trial-{n}-trajectory.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from relaxforge.core import strict_json
from relaxforge.core.evidence import TrajectoryStep
from relaxforge.export.content import text_of

MESSAGE = "message"
"""The tool of a step that is a Turn without a tool call; its observation is what the model said."""

_COMMAND_NAMES = ("command", "cmd", "input")


def steps_of(line: Mapping[str, Any], extra: Iterable[Mapping[str, Any]] | None = None) -> list[TrajectoryStep]:
    """The steps of a dump line: every tool call with its result, every Turn without one, in order of commit.

    Forks and side conversations are among them. ``extra`` are the steps that the agent appended itself, which come
    last; ``None`` takes those of the line.
    """
    drafts = _Drafts()
    for state in line.get("forest") or ():
        drafts.add(state)
    appended = line.get("steps") if extra is None else extra
    rows = [(draft.tool, draft.command, draft.observation or "") for draft in drafts.steps]
    rows += [
        (_text(row.get("tool")), _text(row.get("command")), _text(row.get("observation"))) for row in appended or ()
    ]
    return [TrajectoryStep(number, *row) for number, row in enumerate(rows, start=1)]


def trajectory_file(log: str, steps: Sequence[TrajectoryStep]) -> bytes:
    """The bytes of ``trial-{n}-trajectory.json``. ``log`` is within its budget already; steps are never cut."""
    inner = msgspec.json.encode({"steps": steps}).decode()
    return msgspec.json.encode({"schemaVersion": 1, "log": log, "trajectory": inner})


def read_command(arguments: str) -> str:
    """Tool-call arguments as a person reads them: the command alone where it is all there is, else compact JSON."""
    try:
        value = strict_json.loads(arguments)
    except ValueError:
        return arguments
    if isinstance(value, dict) and len(value) == 1:
        ((name, only),) = value.items()
        if name in _COMMAND_NAMES and isinstance(only, str):
            return only
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


@dataclass(slots=True)
class _Draft:
    tool: str
    command: str
    observation: str | None = None


@dataclass(slots=True)
class _Drafts:
    """Steps under construction: a call gets its observation when a later State brings the result."""

    steps: list[_Draft] = field(default_factory=list)
    calls: dict[str, list[tuple[str, _Draft]]] = field(default_factory=dict)
    """By response State: the ids of its calls and their steps."""

    def add(self, state: Mapping[str, Any]) -> None:
        if state["kind"] == "response":
            self._respond(state)
            return
        open_calls = list(self.calls.get(state["parent"] or "", ()))
        for message in state["message"]:
            if message.get("role") == "tool" and open_calls:
                self._observe(_take(open_calls, message.get("tool_call_id")), text_of(message))

    def _respond(self, state: Mapping[str, Any]) -> None:
        message = state["message"]
        calls = message.get("tool_calls") or ()
        drafts = [_Draft(call["function"]["name"], read_command(call["function"]["arguments"])) for call in calls]
        self.calls[state["state"]] = [(call["id"], draft) for call, draft in zip(calls, drafts, strict=True)]
        self.steps += drafts or [_Draft(MESSAGE, "", text_of(message))]

    def _observe(self, draft: _Draft, result: str) -> None:
        """A second, different result of the same call is a fork of the history, and a step of its own."""
        if draft.observation is None:
            draft.observation = result
        elif draft.observation != result:
            self.steps.append(_Draft(draft.tool, draft.command, result))


def _take(calls: list[tuple[str, _Draft]], call_id: str | None) -> _Draft:
    """The call that a result belongs to: by its id, else the next one. It is removed from ``calls``."""
    place = next((place for place, (known, _) in enumerate(calls) if known == call_id), 0)
    return calls.pop(place)[1]


def steps_in(trajectory: bytes) -> list[TrajectoryStep]:
    """The steps of a trajectory file. Errors: ``ValueError`` when it is not one."""
    try:
        return _inner.decode(_files.decode(trajectory).trajectory).steps
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a trajectory file: {error}") from error


class TrajectoryFile(msgspec.Struct):
    """``trial-{n}-trajectory.json`` as it lies in the store; ``trajectory`` is JSON text again."""

    trajectory: str
    log: str = ""


class _Inner(msgspec.Struct):
    steps: list[TrajectoryStep]


_files = msgspec.json.Decoder(TrajectoryFile)
_inner = msgspec.json.Decoder(_Inner)
