"""The ``gemma4`` parsers.

Format; a notation of its own, in which strings stand between ``<|"|>`` and keys are bare::

    <|channel>thought
    reasoning
    <channel|><|tool_call>call:lookup{city:<|"|>Paris<|"|>,days:[1,2]}<tool_call|>answer
"""

from __future__ import annotations

import re
from typing import Any

from relaxforge.core.messages import Tool
from relaxforge.core.strict_json import MAX_DEPTH
from relaxforge.render.parsers.reading import (
    INVALID_MARKUP,
    Call,
    Cursor,
    NotACallError,
    Reading,
    object_text,
    read_calls,
)
from relaxforge.render.parsers.schema import typed
from relaxforge.render.parsers.think import between

OPEN, CLOSE, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
_OPENING = re.compile(re.escape(OPEN))
_NAME = re.compile(re.escape(OPEN) + r"\s*call:\s*([^\s{}<>]+)\s*")
_QUOTE = re.compile(re.escape(QUOTE))
_KEY = re.compile(rf"{re.escape(QUOTE)}([^<>]*){re.escape(QUOTE)}\s*:|([^:,{{}}\[\]<>]+):")
_BARE = re.compile(r"[^,{}\[\]<>]+")
_ANY = frozenset[str]()


def gemma4(text: str, tools: tuple[Tool, ...]) -> Reading:
    """Read every ``<|tool_call>`` block of ``text``."""
    del tools
    return read_calls(text, _OPENING, lambda cursor: [_block(cursor)], closing=CLOSE)


def gemma4_reasoning(text: str, opened: bool) -> tuple[str, str]:
    """Split sampled ``text`` into (reasoning, answer)."""
    return between(text, opened, "<|channel>thought", "<channel|>")


def _block(cursor: Cursor) -> Call:
    name = cursor.match(_NAME)
    if name is None:
        raise NotACallError("tool_call_name_missing")
    arguments = object_text(_value(cursor, 0))
    cursor.expect(CLOSE)
    return name[1], arguments


def _value(cursor: Cursor, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotACallError("tool_call_nested_too_deeply")
    cursor.skip_space()
    if cursor.take(QUOTE):
        value: Any = cursor.until(_QUOTE)
    elif cursor.take("{"):
        value = {}
        while not cursor.skip_space().take("}"):
            key = _key(cursor)
            value[key] = _value(cursor, depth + 1)
            _comma(cursor, "}")
    elif cursor.take("["):
        value = []
        while not cursor.skip_space().take("]"):
            value.append(_value(cursor, depth + 1))
            _comma(cursor, "]")
    elif bare := cursor.match(_BARE):
        value = typed(bare[0].strip(), _ANY)
    else:
        raise NotACallError(INVALID_MARKUP)
    cursor.skip_space()
    return value


def _key(cursor: Cursor) -> str:
    found = cursor.match(_KEY)
    if found is None:
        raise NotACallError(INVALID_MARKUP)
    return found[1] if found[2] is None else found[2].strip()


def _comma(cursor: Cursor, end: str) -> None:
    if not cursor.take(",") and not cursor.text.startswith(end, cursor.at):
        raise NotACallError(INVALID_MARKUP)
