"""The ``deepseek`` tool-call parser: V3, R1 and V3.1 (control tokens), V3.2 and V4 (tags).

Formats, with ``|`` for the full-width bar and ``_`` for U+2581 of the real control tokens::

    <|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>lookup
    ```json
    {"city": "Paris"}
    ```<|tool_call_end|><|tool_calls_end|>                                                                 V3, R1

    <|tool_calls_begin|><|tool_call_begin|>lookup<|tool_sep|>{"city": "Paris"}<|tool_call_end|>
    <|tool_calls_end|>                                                                                     V3.1

    <|DSML|tool_calls>
    <|DSML|invoke name="lookup">
    <|DSML|parameter name="city" string="true">Paris</|DSML|parameter>
    </|DSML|invoke>
    </|DSML|tool_calls>                                                                                    V3.2, V4
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from relaxforge.core.messages import Tool, canonical_json
from relaxforge.render.parsers.reading import INVALID_JSON, Call, Cursor, NotACallError, Reading, read_calls
from relaxforge.render.parsers.schema import typed

BAR = "\uff5c"


def _token(words: str) -> str:
    return f"<{BAR}{words.replace(' ', chr(0x2581))}{BAR}>"


SECTION, SECTION_END = _token("tool calls begin"), _token("tool calls end")
CALL, CALL_END, SEPARATOR = _token("tool call begin"), _token("tool call end"), _token("tool sep")
_NAME = re.compile(rf"{CALL}(?:function{SEPARATOR}([^\s<>]+)\s*```json\s*|([^\s<>]+){SEPARATOR})")
_FENCE = re.compile(r"\s*(?:```\s*)?")

_TAG = f"{BAR}DSML{BAR} ?"
_TAGS = re.compile(rf"<{_TAG}(?:function_|tool_)?calls>\s*")
_TAGS_END = re.compile(rf"</{_TAG}(?:function_|tool_)?calls>")
_INVOKE = re.compile(rf'<{_TAG}invoke name="([^"\n]+)"(/?)>\s*')
_INVOKE_END = re.compile(rf"</{_TAG}invoke>\s*")
_PARAMETER = re.compile(rf'<{_TAG}parameter name="([^"\n]+)" string="(true|false)">')
_PARAMETER_END = re.compile(rf"</{_TAG}parameter>\s*(?=<{_TAG}parameter|</{_TAG}invoke>)")
_ANY = frozenset[str]()

_OPENING = re.compile(f"{SECTION}|{_TAGS.pattern}")


def deepseek(text: str, tools: tuple[Tool, ...]) -> Reading:
    """Read every section of calls in ``text``, of either kind."""
    del tools
    return read_calls(text, _OPENING, _section)


def _section(cursor: Cursor) -> list[Call]:
    return list(_tokens(cursor) if cursor.take(SECTION) else _tags(cursor))


def _tokens(cursor: Cursor) -> Iterator[Call]:
    while name := cursor.skip_space().match(_NAME):
        arguments = cursor.arguments()
        cursor.match(_FENCE)
        cursor.expect(CALL_END, INVALID_JSON)
        yield name[1] or name[2], arguments
    cursor.expect(SECTION_END)


def _tags(cursor: Cursor) -> Iterator[Call]:
    cursor.match(_TAGS)
    while invoke := cursor.match(_INVOKE):
        arguments = {}
        while parameter := cursor.match(_PARAMETER):
            value = cursor.until(_PARAMETER_END)
            arguments[parameter[1]] = value if parameter[2] == "true" else typed(value, _ANY)
        if not invoke[2] and not cursor.match(_INVOKE_END):
            raise NotACallError("tool_call_unclosed")
        cursor.skip_space()
        yield invoke[1], canonical_json(arguments)
    if not cursor.match(_TAGS_END):
        raise NotACallError("tool_call_unclosed")
