"""How processes are ended: SIGTERM once, a grace period, SIGKILL until they are gone, and an end to the waiting."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

GIVE_UP_S = 10.0
"""Seconds from the first SIGKILL until a process that is still there (another user's, or stuck in the kernel) is left
alone."""


class Ending:
    """When to send what to processes that have to go. Times are monotonic seconds."""

    def __init__(self, grace_s: float, now: float) -> None:
        self._kill_at = now + grace_s
        self._give_up_at = self._kill_at + GIVE_UP_S
        self._asked = False

    def due(self, now: float) -> signal.Signals | None:
        """The signal to send now: SIGTERM on the first call, SIGKILL on every one after the grace period."""
        if now >= self._kill_at:
            return signal.SIGKILL
        if self._asked:
            return None
        self._asked = True
        return signal.SIGTERM

    def gave_up(self, now: float) -> bool:
        """Whether SIGKILL had its time too."""
        return now >= self._give_up_at

    def pause_s(self, now: float) -> float:
        """Seconds until something is due even if no process ends before."""
        return max(0.0, (self._kill_at if now < self._kill_at else self._give_up_at) - now)


def send(number: signal.Signals, groups: Iterable[int]) -> None:
    """Signal whole process groups, so that a process that forks faster than we look is hit as well."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
