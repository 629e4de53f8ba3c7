"""Where an answer stops and the template goes on: which closing ids were sampled and which are still missing."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence


def already_sampled(served: array[int], ids: Sequence[int], closing: int, stop_ids: Collection[int]) -> int:
    """How many of the first ``ids`` the answer ``served`` already holds at its end.

    ``ids`` are closing and delta, of which the first ``closing`` belong to the answer's turn. The longest overlap
    counts; an answer that ends in an end token of the closing holds everything up to that token. A template without
    a closing lets the next message's first token end the answer: that one is not repeated either.
    """
    for length in range(min(closing, len(served)), 0, -1):
        if list(served[-length:]) == list(ids[:length]):
            return length
    if not served or served[-1] not in stop_ids:
        return 0
    window = list(ids[:closing]) if closing else list(ids[:1])
    return window.index(served[-1]) + 1 if served[-1] in window else 0


def missing_end(ids: Sequence[int], held: int, closing: int, stop_ids: Collection[int]) -> int:
    """How many end-of-turn ids the answer lacks: closing ids behind the ``held`` ones, up to the last end token."""
    ends = [at for at in range(closing) if ids[at] in stop_ids]
    return max(0, ends[-1] + 1 - held) if ends else 0
