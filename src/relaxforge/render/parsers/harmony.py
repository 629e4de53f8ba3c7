"""The ``harmony`` parsers: gpt-oss.

An answer is messages, each with a channel and perhaps a recipient; ``analysis`` is reasoning, a recipient is a call::

    <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>commentary to=functions.lookup
    <|constrain|>json<|message|>{"city": "Paris"}<|call|><|start|>assistant<|channel|>final<|message|>answer

The reasoning parser unwraps the messages; it leaves the calls as they are, for the tool-call parser.
"""

from __future__ import annotations

import re

from relaxforge.core.messages import Tool
from relaxforge.render.parsers.reading import INVALID_JSON, Call, Cursor, NotACallError, Reading, read_calls

_START = r"(?:<\|start\|>assistant)"
_HEADER = re.compile(
    rf"{_START}?(?P<header>(?: to=[^\s<]+ ?)?<\|channel\|>(?P<channel>analysis|commentary|final)[^<]*"
    r"(?:<\|constrain\|>[^<]*)?)<\|message\|>"
)
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_END = r"<\|(?:end|call|return)\|>"
_BODY_END = re.compile(rf"{_END}\s*(?={_START}|\Z)|\Z")
_CALL_END = re.compile(rf"\s*(?:{_END}|(?={_START})|\Z)")
_CALL = re.compile(rf"(?:\A|{_START}) to=|{_START}?<\|channel\|>(?:analysis|commentary|final)\s+to=")


def harmony_reasoning(text: str, opened: bool) -> tuple[str, str]:
    """Split sampled ``text`` into (reasoning, answer); all behind the last header that is one belongs to the answer."""
    del opened
    cursor, thoughts, answer = Cursor(text), list[str](), list[str]()
    while header := cursor.match(_HEADER):
        start, body = header.start(), cursor.until(_BODY_END)
        if _RECIPIENT.search(header["header"]):
            answer.append(text[start : cursor.at])
        else:
            (thoughts if header["channel"] == "analysis" else answer).append(body)
    return "\n".join(thoughts), "\n".join(filter(None, [*answer, text[cursor.at :]]))


def harmony(text: str, tools: tuple[Tool, ...]) -> Reading:
    """Read every message of ``text`` that has a recipient."""
    del tools
    return read_calls(text, _CALL, lambda cursor: [_message(cursor)])


def _message(cursor: Cursor) -> Call:
    header = cursor.match(_HEADER)
    if header is None:
        raise NotACallError("tool_call_header_cut")
    recipient = _RECIPIENT.search(header["header"])
    if recipient is None or not recipient[1].startswith("functions."):
        raise NotACallError("tool_call_unknown_recipient")
    arguments = cursor.arguments()
    if not cursor.match(_CALL_END):
        raise NotACallError(INVALID_JSON)
    return recipient[1].removeprefix("functions."), arguments
