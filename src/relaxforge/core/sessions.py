"""Sessions from the outside: what goes into one, how it can end, and what its agent leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

Mode = Literal["train", "eval"]

RESERVED_PREFIX = "RELAX_"
"""How the variables begin with which we speak to agents; nobody else's may."""


class FailureCategory(StrEnum):
    """Why a Session failed. The first block is the agent's doing, the second ours."""

    AGENT_TIMEOUT = "agent_timeout"
    AGENT_ERROR = "agent_error"
    STARTUP_TIMEOUT = "startup_timeout"
    NO_REQUEST = "no_request"
    BAD_OUTPUT = "bad_output"
    EXPORT_MISMATCH = "export_mismatch"
    CONTEXT_EXCEEDED = "context_exceeded"
    WRONG_RESULT = "wrong_result"
    PARTIAL = "partial"
    REFUSAL = "refusal"

    ENV_SETUP = "env_setup"
    PROVIDER_ERROR = "provider_error"
    VERIFIER_ERROR = "verifier_error"
    WORKER_LOST = "worker_lost"
    CANCELLED = "cancelled"

    @property
    def infrastructure(self) -> bool:
        """Whether the fault is ours: such a Session has no reward (null), instead of 0, in an evaluation."""
        return self in INFRASTRUCTURE


INFRASTRUCTURE = frozenset(
    {
        FailureCategory.ENV_SETUP,
        FailureCategory.PROVIDER_ERROR,
        FailureCategory.VERIFIER_ERROR,
        FailureCategory.WORKER_LOST,
        FailureCategory.CANCELLED,
    }
)


class SessionStatus(StrEnum):
    """How a Session ended, as the dump says it."""

    COMPLETED = "completed"
    """The agent exited cleanly and its export was accepted."""
    TRUNCATED = "truncated"
    """Completed, but the exported Context ends in an answer cut by its token budget."""
    FAILED = "failed"
    """The Session itself failed; ``failure`` says why."""
    DROPPED = "dropped"
    """Sound, but its Group was dropped because another Session of it failed, or it was surplus at the step's end."""
    FILTERED = "filtered"
    """Sound, but the sampling filter or custom advantage discarded its Group."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Category, one-line message and a bounded tail of the agent's output (may be empty)."""

    category: FailureCategory
    message: str
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One dataset row.

    ``index`` is its position in the dataset, ``messages`` Chat-shaped dicts or ``None`` for metadata-only rows,
    ``label`` the value under ``--label-key`` for reward functions (never shown to the agent). ``seed`` and
    ``world_seed`` are those of a Trial, where they are given and not derived from the run's.
    """

    index: int
    messages: tuple[dict[str, Any], ...] | None
    metadata: dict[str, Any] | None
    label: Any = None
    seed: int | None = None
    world_seed: int | None = None

    @property
    def session_input(self) -> dict[str, Any]:
        """The object that the agent reads from ``RELAX_INPUT_JSON``."""
        given: dict[str, Any] = {}
        if self.messages is not None:
            given["messages"] = list(self.messages)
        if self.metadata is not None:
            given["metadata"] = self.metadata
        return given


Reward = float | dict[str, Any] | None
"""A scalar outcome, an object with a primary value and helper metrics, or nothing."""


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """One Context that the agent selected: Chat-shaped messages and tools, exactly as used during generation."""

    name: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    reward: Reward = None


@dataclass(frozen=True, slots=True)
class AgentOutput:
    """What stood in ``RELAX_OUTPUT_JSON``.

    With ``records`` the export is explicit; without, it is implicit and ``metadata`` and ``reward`` belong to the one
    Context. ``ignored_keys`` are unknown keys of an implicit object, reported as a warning.
    """

    metadata: dict[str, Any] = field(default_factory=dict)
    reward: Reward = None
    records: tuple[ExportRecord, ...] | None = None
    ignored_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """Everything needed to start one agent process. ``env`` is complete: nothing else is inherited.

    ``prefix`` are the words of what is run around ``bash -c command``, a sandbox for example.
    """

    session_id: str
    command: str
    cwd: str
    io_dir: str
    env: dict[str, str] = field(repr=False)
    prefix: tuple[str, ...] = ()

    @property
    def input_path(self) -> Path:
        return Path(self.io_dir) / "session_input.json"

    @property
    def output_path(self) -> Path:
        return Path(self.io_dir) / "session_output.json"

    @property
    def log_path(self) -> Path:
        return Path(self.io_dir) / "run.log"


@dataclass(frozen=True, slots=True)
class AgentExit:
    """How the agent's leader process ended: ``code`` >= 0, or ``signal`` when one killed it. Seconds since launch."""

    session_id: str
    code: int | None
    signal: int | None
    duration_s: float
    survivors: int = 0
    """Descendants that outlived the leader and were ended by us."""
