"""Time as a value that is handed in, so that tests can move it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Clock = Callable[[], float]
"""Seconds since some fixed moment, never going back."""

monotonic: Clock = time.monotonic


class Stopwatch:
    """Seconds per named phase of a step. Phases may repeat, and add up; they must not overlap."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = self._clock()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._clock() - start
