"""The ``mistral`` parsers: tool calls of Mistral, Devstral and Ministral, reasoning of Magistral.

Formats::

    [TOOL_CALLS] [{"name": "lookup", "arguments": {"city": "Paris"}}]          tokenizer versions 3 and 7
    [TOOL_CALLS]lookup[CALL_ID]123456789[ARGS]{"city": "Paris"}                version 11; 13 has no id
    [THINK]reasoning[/THINK]answer                                             <think> before version 13
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from relaxforge.core.messages import Tool
from relaxforge.render.parsers.reading import Call, Cursor, NotACallError, Reading, call_object, read_calls
from relaxforge.render.parsers.think import between, think

OPEN, THINK, THINK_END = "[TOOL_CALLS]", "[THINK]", "[/THINK]"
_OPENING = re.compile(re.escape(OPEN))
_NAME = re.compile(r"\s*([^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*\w*\s*)?(?:\[ARGS\])?")


def mistral(text: str, tools: tuple[Tool, ...]) -> Reading:
    """Read every ``[TOOL_CALLS]`` block of ``text``."""
    del tools
    return read_calls(text, _OPENING, lambda cursor: list(_block(cursor)))


def mistral_reasoning(text: str, opened: bool) -> tuple[str, str]:
    """Split sampled ``text`` into (reasoning, answer), by brackets or tags, whichever it has."""
    if THINK in text or THINK_END in text:
        return between(text, opened, THINK, THINK_END)
    return think(text, opened)


def _block(cursor: Cursor) -> Iterator[Call]:
    cursor.expect(OPEN)
    if name := cursor.match(_NAME):
        yield name[1], cursor.arguments()
        return
    listed = cursor.json()
    if not isinstance(listed, list):
        raise NotACallError("tool_call_not_a_list")
    for value in listed:
        yield call_object(value, "arguments")
