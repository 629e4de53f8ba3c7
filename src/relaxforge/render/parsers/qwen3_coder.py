"""The ``qwen3_coder`` tool-call parser: Qwen3-Coder, Qwen3.5 and later, Nemotron 3.

Format; string values are raw, other values are JSON::

    <tool_call>
    <function=lookup>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

These models sometimes forget ``<tool_call>`` or a ``</parameter>``; both are read as if they were there.
"""

from __future__ import annotations

import re

from relaxforge.core.messages import Tool, canonical_json
from relaxforge.render.parsers.reading import Call, Cursor, NotACallError, Reading, read_calls
from relaxforge.render.parsers.schema import kinds_of, typed

OPEN, CLOSE, END = "<tool_call>", "</tool_call>", "</function>"
_OPENING = re.compile(f"{OPEN}|<function=")
_NAME = re.compile(r"<function=([^<>\n]+)>\s*")
_PARAMETER = re.compile(r"<parameter=([^<>\n]+)>\n?")
_VALUE_END = re.compile(
    r"\n?</parameter>\s*(?=<parameter=|</function>)"  # only here does the closing tag close, elsewhere it is text
    r"|\n(?=<parameter=[^<>\n]+>\n|</function>\s*</tool_call>)"
)


def qwen3_coder(text: str, tools: tuple[Tool, ...]) -> Reading:
    """Read every ``<function=...>`` block of ``text``; ``tools`` tell strings from other values."""
    return read_calls(text, _OPENING, lambda cursor: [_block(cursor, tools)], closing=END)


def _block(cursor: Cursor, tools: tuple[Tool, ...]) -> Call:
    wrapped = cursor.take(OPEN)
    name = cursor.skip_space().match(_NAME)
    if name is None:
        raise NotACallError("tool_call_name_missing")
    kinds = kinds_of(tools, name[1])
    arguments = {}
    while parameter := cursor.match(_PARAMETER):
        arguments[parameter[1]] = typed(cursor.until(_VALUE_END), kinds.get(parameter[1], frozenset()))
    cursor.expect(END)
    after = cursor.at
    if not cursor.skip_space().take(CLOSE):
        if wrapped:
            raise NotACallError("tool_call_unclosed")
        cursor.at = after
    return name[1], canonical_json(arguments)
