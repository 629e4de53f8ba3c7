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
import re
from dataclasses import dataclass
from typing import Any

from relaxforge.core import strict_json
from relaxforge.core.messages import Tool, canonical_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"

_JSON = json.JSONDecoder()
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


class _NotACallError(Exception):
    """One block that cannot be understood; the message is the reason as one word."""


def _block(body: str) -> tuple[tuple[str, str], str]:
    """The call at the start of ``body`` (after the opening tag) and what follows its closing tag.

    The JSON decides where the block ends, so a closing tag inside a string is text.
    """
    broken = _NotACallError("tool_call_invalid_json" if CLOSE in body else "tool_call_unclosed")
    try:
        start = _behind_space(body, 0)
        _, end = _JSON.raw_decode(body, start)
        value = strict_json.loads(body[start:end])
    except (ValueError, RecursionError):
        raise broken from None
    end = _behind_space(body, end)
    if not body.startswith(CLOSE, end):
        raise broken
    return _call(value), body[end + len(CLOSE) :]


def _call(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict):
        raise _NotACallError("tool_call_not_an_object")
    name, arguments = value.get("name"), value.get("arguments")
    if not isinstance(name, str) or not name:
        raise _NotACallError("tool_call_name_not_a_string")
    if not isinstance(arguments, dict):
        raise _NotACallError("tool_call_arguments_not_an_object")
    return name, canonical_json(arguments)


def _behind_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start
