"""The ``kimi_k3`` parsers.

An answer is elements, of which the prompt has opened the first one already; line breaks here are for reading only::

    <|open|>think<|sep|>reasoning<|close|>think<|sep|><|open|>response<|sep|>answer<|close|>response<|sep|>
    <|open|>tools<|sep|><|open|>call tool="lookup" index="1"<|sep|>
    <|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>
    <|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>

The reasoning parser also unwraps the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from relaxforge.core.messages import Tool, canonical_json
from relaxforge.render.parsers.reading import UNCLOSED, Call, Cursor, Reading, read_calls
from relaxforge.render.parsers.schema import typed
from relaxforge.render.parsers.think import between


def _open(element: str) -> str:
    return f"<|open|>{element}<|sep|>"


def _close(element: str) -> str:
    return f"<|close|>{element}<|sep|>"


TOOLS, TOOLS_END = _open("tools"), _close("tools")
_OPENING = re.compile(re.escape(TOOLS))
_CALL = re.compile(r'<\|open\|>call tool="([^"\n]+)"[^<\n]*<\|sep\|>')
_ARGUMENT = re.compile(r'<\|open\|>argument key="([^"\n]*)" type="(\w+)"<\|sep\|>')
_ARGUMENT_END = re.compile(re.escape(_close("argument")) + r"(?=<\|open\|>argument|<\|close\|>call)")
_ANY = frozenset[str]()


def kimi_k3_reasoning(text: str, opened: bool) -> tuple[str, str]:
    """Split sampled ``text`` into (reasoning, answer); tool calls stay in the answer."""
    answers = text.startswith(_open("response"))
    thought, answer = between(text, opened and not answers, _open("think"), _close("think"))
    answer = answer.removeprefix(_open("response")).removesuffix(_close("message"))
    return thought, answer.replace(_close("response"), "", 1)


def kimi_k3(text: str, tools: tuple[Tool, ...]) -> Reading:
    """Read the ``tools`` elements of ``text``."""
    del tools
    return read_calls(text, _OPENING, lambda cursor: list(_calls(cursor)), closing=TOOLS_END)


def _calls(cursor: Cursor) -> Iterator[Call]:
    cursor.expect(TOOLS)
    while call := cursor.match(_CALL):
        arguments = {}
        while argument := cursor.match(_ARGUMENT):
            value = cursor.until(_ARGUMENT_END)
            arguments[unescape(argument[1])] = value if argument[2] == "string" else typed(value, _ANY)
        cursor.expect(_close("call"), UNCLOSED)
        yield unescape(call[1]), canonical_json(arguments)
    cursor.expect(TOOLS_END)
