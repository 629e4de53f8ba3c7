"""The ``glm`` tool-call parser: GLM-4.5 and later.

Format; string values are raw, other values are JSON; GLM-4.5 and 4.6 put a newline behind name, keys and values::

    <tool_call>lookup<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>
"""

from __future__ import annotations

import re

from relaxforge.core.messages import Tool, canonical_json
from relaxforge.render.parsers.reading import Call, Cursor, NotACallError, Reading, read_calls
from relaxforge.render.parsers.schema import kinds_of, typed

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_OPENING = re.compile(OPEN)
_NAME = re.compile(rf"{OPEN}\s*([^\s<>]+)\s*")
_KEY = re.compile(r"<arg_key>([^<>]+)</arg_key>\s*<arg_value>")
_VALUE_END = re.compile(rf"</arg_value>\s*(?=<arg_key>|{CLOSE})")


def glm(text: str, tools: tuple[Tool, ...]) -> Reading:
    """Read every ``<tool_call>`` block of ``text``; ``tools`` tell strings from other values."""
    return read_calls(text, _OPENING, lambda cursor: [_block(cursor, tools)], closing=CLOSE)


def _block(cursor: Cursor, tools: tuple[Tool, ...]) -> Call:
    name = cursor.match(_NAME)
    if name is None:
        raise NotACallError("tool_call_name_missing")
    kinds = kinds_of(tools, name[1])
    arguments = {}
    while key := cursor.match(_KEY):
        arguments[key[1]] = typed(cursor.until(_VALUE_END), kinds.get(key[1], frozenset()))
    cursor.expect(CLOSE)
    return name[1], canonical_json(arguments)
