"""What became of one Session, from launch to credit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relaxforge.core.evidence import TrajectoryStep, Verdict
from relaxforge.core.sessions import AgentExit, AgentOutput, Failure, Reward, SessionStatus
from relaxforge.forest.lineage import TokenAccount, account, terminal_status
from relaxforge.forest.select import Context
from relaxforge.rollout.session import Session

MASK_REASONS = {
    SessionStatus.FAILED: "session_failed",
    SessionStatus.DROPPED: "group_dropped",
    SessionStatus.FILTERED: "group_filtered",
}


@dataclass(slots=True)
class Outcome:
    """One ended Session. ``reward`` is the primary value; ``reward_detail`` keeps what was written.

    ``drop_reason`` says why a sound Session is not trained: the failed Session of its Group, ``surplus``, or the
    filter's word. ``durations`` are seconds by phase: world, prepare, wait, active, generation, reward. ``verdict`` is
    that of a Trial, ``steps`` are those that the agent noted itself.
    """

    session: Session
    output: AgentOutput = field(default_factory=AgentOutput)
    contexts: tuple[Context, ...] = ()
    failure: Failure | None = None
    exit: AgentExit | None = None
    folder: Path | None = None
    durations: dict[str, float] = field(default_factory=dict)
    reward: float | None = None
    reward_detail: Reward = None
    advantage: float | None = None
    drop_reason: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    verdict: Verdict | None = None
    steps: tuple[TrajectoryStep, ...] = ()

    @property
    def status(self) -> SessionStatus:
        if self.failure is not None:
            return SessionStatus.FAILED
        if self.drop_reason is not None:
            filtered = self.drop_reason.startswith("filter")
            return SessionStatus.FILTERED if filtered else SessionStatus.DROPPED
        truncated = any(terminal_status(context) == "truncated" for context in self.contexts)
        return SessionStatus.TRUNCATED if truncated else SessionStatus.COMPLETED

    @property
    def tokens(self) -> TokenAccount:
        reason = MASK_REASONS.get(self.status)
        if self.drop_reason == "surplus":
            reason = "surplus"
        return account(self.session.forest, self.contexts, reason)

    def written(self, context: Context) -> tuple[dict[str, Any], Reward]:
        """Metadata and reward that the agent wrote for one of the Contexts."""
        for record in self.output.records or ():
            if record.name == context.name:
                return record.metadata, record.reward
        return self.output.metadata, self.output.reward

    @property
    def said(self) -> tuple[dict[str, Any], Reward]:
        """Metadata and reward that the agent wrote for the Session as a whole."""
        return self.written(self.representative) if self.contexts else (self.output.metadata, self.output.reward)

    @property
    def representative(self) -> Context:
        """The Context that speaks for the Session: the first with a reward, else the first."""
        return next((context for context in self.contexts if self.written(context)[1] is not None), self.contexts[0])

    def fail(self, failure: Failure) -> None:
        """Keep the first failure: what follows is its consequence."""
        self.failure = self.failure or failure
