"""Which request owns which slot of the cache, and what a new prompt finds already computed."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np

from relaxforge.core.turns import token_ids

WORTH_WAITING = 16
"""Tokens another request is about to compute for which a new one waits instead of computing them again."""


@dataclass(slots=True)
class _Slot:
    """``ids``: what the slot holds, of which the first ``ready`` are computed."""

    ids: array[int] = field(default_factory=token_ids)
    ready: int = 0
    busy: bool = False
    used: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """A slot for a prompt whose first ``reused`` tokens are computed already, in it or in ``copy_from``."""

    slot: int
    reused: int
    copy_from: int | None


class SlotTable:
    """Bookkeeping only; the tensors are in ``attention.SlotCache``.

    A slot keeps its tokens after its request is done, so the next Turn of a Session goes on where the last one ended,
    and a Group computes its prompt once. A slot that is not continued as a whole is copied from, not cut.
    """

    def __init__(self, slots: int) -> None:
        self._slots = [_Slot() for _ in range(slots)]
        self._clock = 0

    @property
    def has_free(self) -> bool:
        return any(not slot.busy for slot in self._slots)

    @property
    def tokens(self) -> int:
        """Positions that hold something computed."""
        return sum(slot.ready for slot in self._slots)

    def place(self, prompt: array[int]) -> Placement | None:
        """A slot for ``prompt``, or ``None``: all are busy, or one is about to compute the same tokens.

        At most all but the last token are reused, since its logits are needed. The caller owns the slot until
        ``release``; ``prompt`` becomes the slot's ids and may grow.
        """
        free = [number for number, slot in enumerate(self._slots) if not slot.busy]
        if not free:
            return None
        shared = [min(_common(slot.ids, prompt), len(prompt) - 1) for slot in self._slots]
        ready = [min(count, slot.ready) for count, slot in zip(shared, self._slots, strict=True)]
        source = max(range(len(ready)), key=ready.__getitem__)
        if max(shared) >= ready[source] + WORTH_WAITING:
            return None
        oldest = min(free, key=lambda number: self._slots[number].used)
        continued = not self._slots[source].busy and self._slots[source].ready <= ready[source]
        target = source if continued and ready[source] else oldest
        self._clock += 1
        self._slots[target] = _Slot(prompt, ready[source], busy=True, used=self._clock)
        return Placement(target, ready[source], source if target != source and ready[source] else None)

    def computed(self, slot: int, ready: int) -> None:
        """The first ``ready`` ids of a busy slot are in the cache now."""
        self._slots[slot].ready = ready

    def release(self, slot: int) -> None:
        """Its request is done; what was computed stays until another request needs the room."""
        self._clock += 1
        entry = self._slots[slot]
        self._slots[slot] = _Slot(entry.ids[: entry.ready], entry.ready, busy=False, used=self._clock)

    def forget(self) -> None:
        """Nothing in the cache counts any more (new weights); busy slots stay with their requests."""
        for slot in self._slots:
            slot.ready = 0
            if not slot.busy:
                slot.ids = token_ids()


def _common(left: array[int], right: array[int]) -> int:
    """Length of the longest common prefix."""
    size = min(len(left), len(right))
    different = np.frombuffer(left, np.intc, size) != np.frombuffer(right, np.intc, size) if size else np.empty(0, bool)
    first = int(different.argmax()) if size else 0
    return first if size and different[first] else size
