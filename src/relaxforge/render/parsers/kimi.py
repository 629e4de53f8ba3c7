"""The ``kimi`` tool-call parser: Kimi K2, K2-Thinking, K2.5 and later.

Format; the number counts the calls of the conversation::

    <|tool_calls_section_begin|><|tool_call_begin|>functions.lookup:0<|tool_call_argument_begin|>{"city": "Paris"}
    <|tool_call_end|><|tool_calls_section_end|>
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from relaxforge.core.messages import Tool
from relaxforge.render.parsers.reading import INVALID_JSON, Call, Cursor, Reading, read_calls

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL_END = "<|tool_call_end|>"
_OPENING = re.compile(re.escape(SECTION))
_ID = re.compile(r"<\|tool_call_begin\|>\s*(?:functions\.)?([^\s<>:]+):\d+\s*<\|tool_call_argument_begin\|>")


def kimi(text: str, tools: tuple[Tool, ...]) -> Reading:
    """Read every section of calls in ``text``."""
    del tools
    return read_calls(text, _OPENING, lambda cursor: list(_section(cursor)), closing=SECTION_END)


def _section(cursor: Cursor) -> Iterator[Call]:
    cursor.expect(SECTION)
    while found := cursor.skip_space().match(_ID):
        arguments = cursor.arguments()
        cursor.skip_space().expect(CALL_END, INVALID_JSON)
        yield found[1], arguments
    cursor.expect(SECTION_END)
