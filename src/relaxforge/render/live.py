"""The text of an answer while it is sampled: only what no parser will turn into reasoning or a call any more."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relaxforge.core.turns import TextPiece, TokenChunk
from relaxforge.render.parsers.think import CLOSE, OPEN

UNFINISHED = "\ufffd"
MAX_PENDING = 8
"""Ids to hold back while their bytes form no whole character; no character takes more than four bytes."""

MARKUP = "<[{"
"""What the calls of every format that is read block by block begin with."""


@dataclass(slots=True)
class LiveText:
    """Takes chunks of one answer, tells ``said`` the pieces of its text that are settled.

    The pieces together are a prefix of the final text; the rest comes with the answer. ``opened`` says that the prompt
    opened a think block, ``thinks`` that one may stand before the text: then nothing is settled before it is closed,
    since a closing tag may also close what was never opened. Where calls may come, text ends at the first character
    that could begin one, and white space in front of it waits.
    """

    decode: Callable[[Sequence[int]], str]
    said: Callable[[TextPiece], None]
    stop_token_ids: frozenset[int]
    stops: tuple[str, ...]
    prompt_tokens: int
    thinks: bool
    opened: bool
    calls: bool
    _before: list[int] = field(default_factory=list)
    _pending: list[int] = field(default_factory=list)
    _text: str = ""
    _sent: int = 0
    _ended: bool = False

    def take(self, chunk: TokenChunk) -> None:
        if self._ended:
            return
        self._text += self._new(chunk.ids)
        settled, reasoning = self._text, ""
        if self.thinks:
            inside = settled if self.opened else settled.lstrip()
            if not self.opened and not inside.startswith(OPEN):
                return
            thought, closed, settled = inside.removeprefix("" if self.opened else OPEN).partition(CLOSE)
            if not closed:
                return
            settled, reasoning = settled.lstrip("\n"), thought.strip("\n")
        settled = settled[: self._end(settled)].rstrip()
        if piece := settled[self._sent :]:
            self._sent = len(settled)
            self.said(TextPiece(chunk.request_id, piece, reasoning, self.prompt_tokens))

    def _new(self, ids: array[int]) -> str:
        """The text that ``ids`` add; nothing while their last character is incomplete."""
        for token in ids:
            self._ended = self._ended or token in self.stop_token_ids
            if not self._ended:
                self._pending.append(token)
        known = self.decode(self._before) if self._before else ""
        new = self.decode([*self._before, *self._pending])[len(known) :]
        if new.endswith(UNFINISHED) and len(self._pending) < MAX_PENDING and not self._ended:
            return ""
        if self._pending:
            self._before, self._pending = self._pending, []
        return new

    def _end(self, text: str) -> int:
        """Where ``text`` stops being settled."""
        ends = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        ends += [at for mark in (MARKUP if self.calls else "") + UNFINISHED if (at := text.find(mark)) >= 0]
        held = max((len(stop) for stop in self.stops), default=1) - 1
        return min([*ends, len(text) - held])
