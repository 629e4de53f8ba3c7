"""The conversations of one Session, read from its dump line: Turns with tokens and time, and the tree they form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relaxforge.web.pages.agent_text import first_line

MOST_STATES = 1_000
"""States that the tree shows at most; the artifact has all."""


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One model request. ``None`` means that the dump line does not say.

    ``prompt`` counts all tokens that the model read, ``observed`` those that were new, ``sampled`` those it wrote.
    """

    number: int
    request_id: str
    api: str
    state: str | None
    parent: str | None
    prompt: int | None
    observed: int | None
    sampled: int | None
    finish: str | None
    versions: str
    held_s: float | None
    generation_s: float | None
    http_status: int | None
    error: str | None
    note: str


@dataclass(frozen=True, slots=True)
class Node:
    """One State of the tree. ``depth`` grows only where conversations part.

    ``branches`` is how many follow it; ``branch`` which of several after the same State it is, counted from 1, else 0.
    """

    state: str
    kind: str
    depth: int
    branch: int
    branches: int
    roles: str
    text: str
    tokens: int
    finish: str | None
    sample: str | None
    delivered: bool | None
    redacted: bool


def read_session(body: bytes) -> dict[str, Any]:
    """The dump line. Errors: ``ValueError`` when it is not one."""
    line = json.loads(body)
    if not isinstance(line, dict):
        raise ValueError("the session artifact is not an object")  # noqa: TRY004  (the file is wrong, not a type here)
    return line


def turns_of(line: Mapping[str, Any]) -> list[TurnRow]:
    """Every model request of the Session, refused ones too, in order of arrival."""
    states = {state["state"]: state for state in line.get("forest", ())}
    return [_turn(number, request, states) for number, request in enumerate(line.get("requests", ()), 1)]


def _turn(number: int, request: Mapping[str, Any], states: Mapping[str, Mapping[str, Any]]) -> TurnRow:
    state = states.get(request.get("state") or "", {})
    observed = states.get(state.get("parent") or "", {})
    timing, usage = request.get("timing") or {}, request.get("usage") or {}
    return TurnRow(
        number,
        request.get("request_id", ""),
        request.get("api", ""),
        request.get("state"),
        state.get("parent"),
        usage.get("prompt_tokens"),
        _length(observed) if observed.get("kind") == "observation" else None,
        _length(state) or usage.get("completion_tokens"),
        state.get("finish_reason"),
        ", ".join(str(version) for version in sorted({span[0] for span in state.get("weight_versions") or ()})),
        timing.get("held_s"),
        timing.get("generation_s"),
        request.get("http_status"),
        request.get("error"),
        _note(request),
    )


def _length(state: Mapping[str, Any]) -> int | None:
    tokens = state.get("tokens")
    return len(tokens) if isinstance(tokens, list) else None


def _note(request: Mapping[str, Any]) -> str:
    notes = []
    if request.get("retry_of"):
        notes.append(f"repeats {request['retry_of']}")
    if request.get("delivered") is False:
        notes.append("answer not read")
    notes.extend(f"{cause} ({count})" for cause, count in sorted((request.get("normalised") or {}).items()))
    return "; ".join(notes)


def tree_of(line: Mapping[str, Any]) -> tuple[list[Node], int]:
    """The States in the order of a walk through the tree, at most ``MOST_STATES`` of them, and how many there are."""
    states = [state for state in line.get("forest", ()) if isinstance(state, dict)]
    children: dict[str | None, list[dict[str, Any]]] = {}
    names = {state.get("state") for state in states}
    for state in states:
        parent = state.get("parent")
        children.setdefault(parent if parent in names else None, []).append(state)
    samples = {sample.get("state"): sample.get("name") or "sample" for sample in line.get("samples", ())}
    nodes: list[Node] = []
    for state, depth, branch in _walk(children):
        if len(nodes) == MOST_STATES:
            break
        nodes.append(_node(state, depth, branch, len(children.get(state.get("state"), ())), samples))
    return nodes, len(states)


def _walk(children: Mapping[str | None, Sequence[dict[str, Any]]]) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Depth first without recursion: a Session may have thousands of Turns one after the other."""
    waiting = _siblings(children.get(None, ()), 0)
    while waiting:
        state, depth, branch = waiting.pop()
        yield state, depth, branch
        waiting.extend(_siblings(children.get(state.get("state"), ()), depth))


def _siblings(states: Sequence[dict[str, Any]], depth: int) -> list[tuple[dict[str, Any], int, int]]:
    """The States that follow one, last first: alone they go on at its depth, several are deeper and numbered."""
    several = len(states) > 1
    numbered = [(state, depth + several, index if several else 0) for index, state in enumerate(states, 1)]
    return numbered[::-1]


def _node(state: Mapping[str, Any], depth: int, branch: int, branches: int, samples: Mapping[Any, str]) -> Node:
    message = state.get("message")
    messages = message if isinstance(message, list) else [message or {}]
    return Node(
        str(state.get("state")),
        str(state.get("kind")),
        min(depth, 12),
        branch,
        branches,
        ", ".join(dict.fromkeys(str(each.get("role", "")) for each in messages)),
        first_line(" ".join(filter(None, map(_gist, messages))), 140),
        _length(state) or 0,
        state.get("finish_reason"),
        samples.get(state.get("state")),
        state.get("delivered"),
        bool(state.get("redacted")),
    )


def _gist(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = " ".join(str(part.get("text", f"[{part.get('type')}]")) for part in content if isinstance(part, dict))
    calls = [call.get("function", {}) for call in message.get("tool_calls") or ()]
    said = [f"{call.get('name')}({call.get('arguments')})" for call in calls]
    return " ".join([*([str(content)] if content else []), *said])
