"""Stop strings over sampled tokens: found as soon as they are complete, wherever the tokens are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"
MAX_PENDING = 8
"""Ids to hold back while their bytes form no whole character; no character takes more than four bytes."""


class StopWatcher:
    """Watches the text of one answer for ``stops``; ``feed`` costs the same however long the answer is.

    Tokens are decoded together with the ones before them, since a token may hold part of a character, and since some
    tokenizers drop a leading space that has nothing in front.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: tuple[str, ...]) -> None:
        self._decode = decode
        self._stops = tuple(stop for stop in stops if stop)
        self._keep = max((len(stop) for stop in self._stops), default=1) - 1
        self._before: list[int] = []
        self._pending: list[int] = []
        self._tail = ""

    def feed(self, token: int) -> str | None:
        """Take the next sampled id; the stop string that it completes (the earliest in the text), else ``None``."""
        self._pending.append(token)
        known = self._decode(self._before) if self._before else ""
        new = self._decode([*self._before, *self._pending])[len(known) :]
        if new.endswith(UNFINISHED) and len(self._pending) < MAX_PENDING:
            return None
        self._before, self._pending = self._pending, []
        text = self._tail + new
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        self._tail = text[-self._keep :] if self._keep else ""
        return min(found, key=lambda hit: hit[0])[1] if found else None
