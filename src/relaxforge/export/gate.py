"""How many exports an organization may have under way at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from relaxforge.export.errors import BusyError

MOST_AT_ONCE = 2


class Gate:
    """Lets ``most`` exports of each organization in; for one event loop. An export counts until it was written."""

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._most = most
        self._inside: Counter[Hashable] = Counter()

    @contextmanager
    def enter(self, organization: Hashable) -> Iterator[None]:
        """Be one of them. Errors: ``BusyError``."""
        if self._inside[organization] >= self._most:
            raise BusyError(self._most)
        self._inside[organization] += 1
        try:
            yield
        finally:
            self._inside[organization] -= 1
            if not self._inside[organization]:
                del self._inside[organization]
