"""The evidence of one attempt, between the run that made it and the places that keep and show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from relaxforge.core.sessions import Mode

RewardStatus = Literal["scored", "not_scored", "out_of_range"]


@dataclass(frozen=True, slots=True)
class TrajectoryStep:
    """One thing the agent did: ``tool`` with ``command``, and what came of it; ``step`` counts from 1."""

    step: int
    tool: str
    command: str
    observation: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an evaluator wrote, read and checked.

    ``reward`` is in [0, 1] or ``None``; ``raw_reward`` is the JSON text of what stood there, whatever it was.
    ``stages`` are the ``stage_*`` numbers and ``metrics`` the other numbers, both exactly as written.
    """

    reward: float | None
    reward_status: RewardStatus
    raw_reward: str | None = None
    stages: dict[str, int | float] = field(default_factory=dict)
    metrics: dict[str, int | float] = field(default_factory=dict)
    failure_category: str | None = None


@dataclass(frozen=True, slots=True)
class TrialEvidence:
    """Everything that is kept of one ended attempt. Text is sanitised and redacted already.

    ``status`` is a ``SessionStatus``; ``session`` is the dump line (the exact tokens), ``trajectory`` the bytes of
    ``trial-{n}-trajectory.json``. ``durations`` are seconds by phase. ``sanitised`` counts what had to be replaced.
    """

    status: str
    verdict: Verdict
    trajectory: bytes
    session: bytes
    step_count: int
    log_truncated: bool = False
    failure_message: str | None = None
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    duration_s: float = 0.0
    durations: dict[str, float] = field(default_factory=dict)
    sanitised: dict[str, int] = field(default_factory=dict)


TrajectoryStatus = Literal["present", "none", "missing"]
"""``none``: the attempt left no trajectory; ``missing``: it left one that can no longer be read."""


@dataclass(frozen=True, slots=True)
class StoredRollout:
    """The scored record of one ended attempt as it lies in the store, with the bodies that somebody asked for.

    Ids are the text of UUIDs; those of what an attempt does not have (an evaluation run, for one of training) are
    ``None``. ``trajectory`` and ``session`` are as in ``TrialEvidence``.
    """

    id: str
    trial_id: str
    seed: int
    reward: float | None
    created_at: datetime
    environment_version_id: str | None = None
    evaluation_run_id: str | None = None
    training_run_id: str | None = None
    stages: dict[str, int | float] = field(default_factory=dict)
    failure_category: str | None = None
    status: str = ""
    world_seed: int = 0
    task_index: int = 0
    attempt_no: int = 1
    agent_name: str = ""
    agent_version: str = ""
    model_name: str = ""
    trajectory_status: TrajectoryStatus = "none"
    trajectory: bytes | None = None
    session: bytes | None = None


@dataclass(frozen=True, slots=True)
class TrainingRunCard:
    """A run that sends its evidence to a workspace. ``source_key`` stays the same however often it is resumed."""

    source_key: str
    name: str
    configuration: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainingSession:
    """One ended Session of a training run. ``session_key`` is its id, which no other Session of the run has.

    ``attempt_no`` counts from 1 within its Group.
    """

    session_key: str
    rollout_step: int
    group_key: str
    mode: Mode
    task_index: int
    attempt_no: int
    seed: int
    world_seed: int
    evidence: TrialEvidence


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """The numbers of one rollout step or evaluation; ``incarnation`` tells attempts at the same step apart.

    ``name`` is that of the evaluation, empty for a step. A metric without a value is ``None``.
    """

    kind: Literal["step", "eval"]
    step: int
    name: str
    incarnation: int
    metrics: dict[str, float | None]
