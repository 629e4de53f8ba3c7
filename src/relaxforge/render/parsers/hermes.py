"""The ``qwen`` (``hermes``) tool-call parser.

Format, as the chat templates of Hermes, Qwen2.5 and Qwen3 describe it to the model::

    <tool_call>
    {"name": "lookup", "arguments": {"city": "Paris"}}
    </tool_call>

An answer is understood as a whole or not at all: one block that is cut, is not JSON, or is not a call turns the whole
answer into plain text, so that no half-understood call ever reaches an agent.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relaxforge.core.messages import Tool, canonical_json
from relaxforge.render.tokens import whole_characters

OPEN, CLOSE = "<tool_call>", "</tool_call>"

_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a tool-call parser found: remaining text, and (name, arguments as canonical JSON) per call.

    ``malformed`` names why nothing was understood; then ``text`` is everything and ``calls`` is empty.
    """

    text: str
    calls: tuple[tuple[str, str], ...] = ()
    malformed: str | None = None


def hermes(text: str, tools: tuple[Tool, ...]) -> Reading:
    """Read every ``<tool_call>`` block of ``text``. Newlines next to blocks belong to the format and are dropped."""
    del tools
    rest = text
    texts: list[str] = []
    calls: list[tuple[str, str]] = []
    while OPEN in rest:
        before, _, body = rest.partition(OPEN)
        texts.append(before.strip("\n") if calls else before.rstrip("\n"))
        try:
            call, rest = _block(body)
        except _NotACallError as error:
            return Reading(text, malformed=str(error))
        calls.append(call)
    texts.append(rest.lstrip("\n") if calls else rest)
    return Reading("".join(texts), tuple(calls))


class _NotACallError(ValueError):
    """One block that cannot be understood; the message is the reason as one word."""


def _block(body: str) -> tuple[tuple[str, str], str]:
    """The call at the start of ``body`` (after the opening tag) and what follows its closing tag."""
    try:
        value, end = _JSON.raw_decode(body, _skip_space(body, 0))
        call = _call(value)
    except (ValueError, RecursionError) as error:
        if isinstance(error, _NotACallError):
            raise
        raise _NotACallError("tool_call_invalid_json" if CLOSE in body else "tool_call_unclosed") from None
    end = _skip_space(body, end)
    if not body.startswith(CLOSE, end):
        raise _NotACallError("tool_call_invalid_json" if CLOSE in body else "tool_call_unclosed")
    return call, body[end + len(CLOSE) :]


def _call(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict):
        raise _NotACallError("tool_call_not_an_object")
    name, arguments = value.get("name"), value.get("arguments")
    if not isinstance(name, str) or not name:
        raise _NotACallError("tool_call_name_not_a_string")
    if not isinstance(arguments, Mapping):
        raise _NotACallError("tool_call_arguments_not_an_object")
    return whole_characters(name), whole_characters(canonical_json(arguments))


def _skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)
