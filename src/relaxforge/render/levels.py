"""How much context a delta needs: the cheapest window that gives, for every canned conversation, the full delta."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from relaxforge.core.errors import RenderError
from relaxforge.core.messages import Message, ModelRequest, RetryHint, Tool, ToolCall
from relaxforge.render.effort import EFFORT
from relaxforge.render.properties import Level
from relaxforge.render.window import Delta, Window

_TOOL = Tool("lookup", "look something up", '{"properties":{"city":{"type":"string"}},"type":"object"}')
_SYSTEM = Message("system", "be brief")
_ANSWER = Message("assistant", "plain answer", reasoning="because of that")


def _user(number: int) -> Message:
    return Message("user", f"question {number}")


def _calls(first: int, last: int) -> Message:
    calls = (ToolCall(f"call_{at:024d}", "lookup", f'{{"city":"{at}"}}') for at in range(first, last + 1))
    return Message("assistant", tool_calls=tuple(calls))


def _result(at: int) -> Message:
    return Message("tool", f"result {at}", tool_call_id=f"call_{at:024d}")


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    messages: tuple[Message, ...]


_HISTORIES = (
    _Case("in the first turn", (_user(1),)),
    _Case("after an answer", (_user(1), _ANSWER, _user(2))),
    _Case("in a tool loop", (_user(1), _calls(1, 1), _result(1))),
    _Case("after a tool loop", (_user(1), _calls(1, 2), _result(1), _result(2), _ANSWER, _user(2))),
)
_TALK = (
    _Case("a user message", (_ANSWER, _user(3))),
    _Case("no new message", (_ANSWER,)),
    _Case("an assistant and a user message", (_ANSWER, _ANSWER, _user(3))),
    _Case("a system and a user message", (_ANSWER, _SYSTEM, _user(3))),
)
_RESULTS = (
    _Case("a tool result", (_calls(3, 3), _result(3))),
    _Case("two tool results", (_calls(3, 4), _result(3), _result(4))),
    _Case("a tool result and a user message", (_calls(3, 3), _result(3), _user(3))),
    _Case("a tool result, another call and its result", (_calls(3, 3), _result(3), _calls(4, 4), _result(4))),
)
_SETTINGS: tuple[tuple[tuple[Message, ...], tuple[Tool, ...]], ...] = (((), ()), ((_SYSTEM,), (_TOOL,)))


def learn_levels(window: Window, kwargs: Mapping[str, Any]) -> dict[str, str]:
    """The level properties of a template, by name: for new messages without and with tool results."""
    talk, why_talk = _cheapest(window, kwargs, _TALK)
    results, why_results = _cheapest(window, kwargs, _RESULTS)
    return {"level": talk, "level_reason": why_talk, "tool_level": results, "tool_level_reason": why_results}


def _cheapest(window: Window, kwargs: Mapping[str, Any], suffixes: tuple[_Case, ...]) -> tuple[Level, str]:
    """The level, and why no cheaper one does (empty for ``bare``)."""
    reason = ""
    levels: tuple[Level, ...] = ("bare", "window")
    for level in levels:
        differs = next(_differences(window, kwargs, suffixes, level), None)
        if differs is None:
            return level, reason
        reason = f"{level} differs for {differs}"
    return "full", reason


def _differences(window: Window, kwargs: Mapping[str, Any], suffixes: tuple[_Case, ...], level: Level) -> Iterator[str]:
    """Names of canned conversations whose delta at ``level`` is not the full one."""
    switches: list[dict[str, Any]] = [{}]
    if switch := window.properties.thinking_switch:
        switches += [{switch: False}, {switch: True}]
    if efforts := window.properties.efforts:
        switches += [{EFFORT: efforts[0]}, {EFFORT: efforts[-1]}]
    for suffix, (lead, tools), given in product(suffixes, _SETTINGS, switches):
        deltas = [
            _delta(window, (*lead, *history.messages), suffix.messages, tools, {**kwargs, **given}, needed)
            for history, needed in [(_HISTORIES[0], level), *((history, "full") for history in _HISTORIES)]
        ]
        for history, full in zip(_HISTORIES, deltas[1:], strict=True):
            if full is not None and full != deltas[0]:
                yield f"{suffix.name} {history.name}"


def _delta(
    window: Window,
    before: tuple[Message, ...],
    suffix: tuple[Message, ...],
    tools: tuple[Tool, ...],
    kwargs: Mapping[str, Any],
    level: Level,
) -> Delta | None:
    """``None`` when the template refuses. The first message of ``suffix`` is the answer."""
    request = ModelRequest("chat", "", (*before, *suffix), RetryHint(b""), tools)
    try:
        return window.delta(request, len(before) + 1, kwargs, {}, level)
    except RenderError:
        return None
