"""What every tool-call parser shares: the result, a cursor over sampled text, and the rule "whole or not at all".

An answer is understood as a whole or not at all: one call that is cut or is not a call turns the whole answer into
plain text with a reason, so that no half-understood call ever reaches an agent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from relaxforge.core import strict_json
from relaxforge.core.messages import canonical_json

Call = tuple[str, str]
"""Name, and arguments as canonical JSON."""

_JSON = json.JSONDecoder()
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a tool-call parser found: remaining text, and (name, arguments as canonical JSON) per call.

    ``malformed`` names why nothing was understood; then ``text`` is everything and ``calls`` is empty.
    """

    text: str
    calls: tuple[Call, ...] = ()
    malformed: str | None = None


class NotACallError(Exception):
    """One call that cannot be understood; the message is the reason as one word."""


UNCLOSED, INVALID_JSON, INVALID_MARKUP = "tool_call_unclosed", "tool_call_invalid_json", "tool_call_invalid_markup"


class Cursor:
    """A place ``at`` in ``text`` that moves on. Errors everywhere: ``NotACallError``; then ``at`` stays."""

    __slots__ = ("at", "text")

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at

    def take(self, spelling: str) -> bool:
        """Whether ``spelling`` comes next; if so, it is behind us."""
        if not self.text.startswith(spelling, self.at):
            return False
        self.at += len(spelling)
        return True

    def expect(self, spelling: str, reason: str = INVALID_MARKUP) -> None:
        if not self.take(spelling):
            raise NotACallError(reason)

    def skip_space(self) -> Cursor:
        if found := _SPACE.match(self.text, self.at):
            self.at = found.end()
        return self

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """``pattern`` right here; if it matches, it is behind us."""
        if found := pattern.match(self.text, self.at):
            self.at = found.end()
        return found

    def until(self, end: re.Pattern[str]) -> str:
        """Text before the next ``end``, which is behind us then."""
        found = end.search(self.text, self.at)
        if found is None:
            raise NotACallError(UNCLOSED)
        text = self.text[self.at : found.start()]
        self.at = found.end()
        return text

    def json(self) -> Any:
        """The JSON value that comes next. It decides itself where it ends, so markup inside a string is text."""
        start = self.skip_space().at
        try:
            _, end = _JSON.raw_decode(self.text, start)
            value = strict_json.loads(self.text[start:end])
        except (ValueError, RecursionError):
            raise NotACallError(INVALID_JSON) from None
        self.at = end
        return value

    def arguments(self) -> str:
        """The JSON object that comes next, as canonical JSON."""
        return object_text(self.json())


def object_text(value: Any) -> str:
    if not isinstance(value, Mapping):
        raise NotACallError("tool_call_arguments_not_an_object")
    return canonical_json(value)


def call_object(value: Any, *argument_keys: str) -> Call:
    """A call that is spelled as ``{"name": ..., "arguments": {...}}``."""
    if not isinstance(value, dict):
        raise NotACallError("tool_call_not_an_object")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise NotACallError("tool_call_name_not_a_string")
    return name, object_text(next((value[key] for key in argument_keys if key in value), None))


def read_calls(
    text: str, opening: re.Pattern[str], block: Callable[[Cursor], Iterable[Call]], *, closing: str = ""
) -> Reading:
    """Read every block of ``text``; ``opening`` is where one begins, and there ``block`` begins to read.

    Newlines next to blocks belong to the formats and are dropped. A broken block without any ``closing`` behind it
    counts as unclosed.
    """
    cursor, texts, calls = Cursor(text), list[str](), list[Call]()
    while found := opening.search(text, cursor.at):
        before = text[cursor.at : found.start()]
        texts.append(before.strip("\n") if texts else before.rstrip("\n"))
        cursor.at = found.start()
        try:
            calls.extend(block(cursor))
        except NotACallError as error:
            cut = text.find(closing, found.end()) < 0
            return Reading(text, malformed=UNCLOSED if cut else str(error))
    rest = text[cursor.at :]
    texts.append(rest.lstrip("\n") if texts else rest)
    return Reading("".join(texts), tuple(calls))
