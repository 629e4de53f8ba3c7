"""The ``llama3`` tool-call parser: Llama 3.1 and later, and Llama 4 where it is asked for JSON.

Format; the whole answer is the call, or what follows ``<|python_tag|>``; several are separated by ``;``::

    {"name": "lookup", "parameters": {"city": "Paris"}}

Without the tag, an answer is a call only if it begins as one: JSON of any other kind is an answer in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from relaxforge.core.messages import Tool
from relaxforge.render.parsers.reading import Call, Cursor, Reading, call_object, read_calls

TAG = "<|python_tag|>"
_TAG = re.compile(re.escape(TAG))
_BEGINS_CALL = re.compile(
    r'\A\s*(?=\{\s*"(?:name"\s*:\s*"[^"]+"\s*,\s*"(?:parameters|arguments)|type"\s*:\s*"function)")'
)
_SEPARATOR = re.compile(r"\s*[;,]?\s*")


def llama3(text: str, tools: tuple[Tool, ...]) -> Reading:
    """Read ``text`` as calls from its start, or from the tag on."""
    del tools
    opening = _BEGINS_CALL if _BEGINS_CALL.match(text) else _TAG
    return read_calls(text, opening, lambda cursor: list(_objects(cursor)))


def _objects(cursor: Cursor) -> Iterator[Call]:
    cursor.take(TAG)
    yield call_object(cursor.json(), "parameters", "arguments")
    while cursor.match(_SEPARATOR) and cursor.at < len(cursor.text):
        cursor.take(TAG)
        yield call_object(cursor.json(), "parameters", "arguments")
