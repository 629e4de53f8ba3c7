"""The active time of a Session: runs from its lease, stands still while the Session is parked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class ActiveClock:
    """A budget of active seconds. ``expired`` waits until it is used up, however often it was paused."""

    def __init__(self, budget_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.budget_s = budget_s
        self._now = now
        self._spent = 0.0
        self._since: float | None = None
        self._changed = asyncio.Event()

    @property
    def spent_s(self) -> float:
        """Active seconds so far."""
        running = self._now() - self._since if self._since is not None else 0.0
        return self._spent + running

    def run(self) -> None:
        """Start or go on; does nothing while running."""
        if self._since is None:
            self._since = self._now()
            self._signal()

    def pause(self) -> None:
        """Stand still; does nothing while standing."""
        self._spent = self.spent_s
        self._since = None
        self._signal()

    async def expired(self) -> None:
        """Return once the budget is spent."""
        while (left := self.budget_s - self.spent_s) > 0:
            changed = self._changed
            try:
                await asyncio.wait_for(changed.wait(), left if self._since is not None else None)
            except TimeoutError:
                continue

    def _signal(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
