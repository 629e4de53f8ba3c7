"""The ``qwen`` (``hermes``) tool-call parser.

Format, as the chat templates of Hermes, Qwen2.5 and Qwen3 describe it to the model::

    <tool_call>
    {"name": "lookup", "arguments": {"city": "Paris"}}
    </tool_call>
"""

from __future__ import annotations

import re

from relaxforge.core.messages import Tool
from relaxforge.render.parsers.reading import INVALID_JSON, Call, Cursor, Reading, call_object, read_calls

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_OPENING = re.compile(OPEN)


def hermes(text: str, tools: tuple[Tool, ...]) -> Reading:
    """Read every ``<tool_call>`` block of ``text``."""
    del tools
    return read_calls(text, _OPENING, _block, closing=CLOSE)


def _block(cursor: Cursor) -> list[Call]:
    cursor.expect(OPEN)
    value = cursor.json()
    cursor.skip_space().expect(CLOSE, INVALID_JSON)
    return [call_object(value, "arguments")]
