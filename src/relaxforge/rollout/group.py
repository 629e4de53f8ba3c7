"""A Group while it runs: its Sessions, its barrier, and the way it is stopped."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from relaxforge.core.sessions import Task
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.session import Session


@dataclass(slots=True)
class RunningGroup:
    """The Sessions of one Task that are compared with each other.

    ``stop`` ends all of them; ``stopped_by`` says why sound Sessions of the Group are not trained.
    """

    number: int
    group_id: str
    task: Task
    sessions: tuple[Session, ...]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    stopped_by: str | None = None
    outcomes: list[Outcome] = field(default_factory=list)

    def lease(self) -> None:
        for session in self.sessions:
            session.open_gate()

    def halt(self, reason: str) -> None:
        """End all Sessions that still run; the first reason stays."""
        self.stopped_by = self.stopped_by or reason
        self.stop.set()

    @property
    def failure(self) -> str | None:
        """The category of the first failed Session."""
        return next((str(outcome.failure.category) for outcome in self.outcomes if outcome.failure), None)

    def settle(self, reason: str) -> None:
        """Give every sound Session of the Group the reason why it is not trained."""
        for outcome in self.outcomes:
            if outcome.failure is None:
                outcome.drop_reason = outcome.drop_reason or reason
