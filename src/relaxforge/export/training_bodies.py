"""What a training run sends to a workspace, as JSON: the sender writes these bodies, the API reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from relaxforge.core.evidence import (
    RewardStatus,
    TrainingRunCard,
    TrainingSession,
    TrainingStep,
    TrialEvidence,
    Verdict,
)
from relaxforge.core.sessions import Mode
from relaxforge.export.errors import BodyError

T = TypeVar("T")

MOST_ROWS = 1000
"""Sessions or steps of one body."""

Name = Annotated[str, Meta(min_length=1, max_length=500)]
Whole = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Tokens = Annotated[int, Meta(ge=0, le=2**53)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Seconds = Annotated[float, Meta(ge=0)]


class _Run(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    source_key: Name
    name: Name
    configuration: dict[str, Any] = {}


class _Session(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A ``TrainingSession`` with its evidence and its verdict side by side. An empty ``session`` was left out."""

    session_key: Name
    rollout_step: Whole
    group_key: Name
    mode: Mode
    task_index: Whole
    attempt_no: Count
    seed: Seed
    world_seed: Seed
    status: Literal["completed", "truncated", "failed", "dropped", "filtered"]
    reward: Annotated[float, Meta(ge=0, le=1)] | None
    reward_status: RewardStatus
    trajectory: str
    session: str = ""
    raw_reward: str | None = None
    stages: dict[str, int | float] = {}
    metrics: dict[str, int | float] = {}
    failure_category: Name | None = None
    failure_message: str | None = None
    step_count: Whole = 0
    log_truncated: bool = False
    turns: Whole = 0
    prompt_tokens: Tokens = 0
    completion_tokens: Tokens = 0
    duration_s: Seconds = 0.0
    durations: dict[str, float] = {}
    sanitised: dict[str, int] = {}


class _Step(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    kind: Literal["step", "eval"]
    step: Whole
    metrics: dict[str, float | None]
    name: Annotated[str, Meta(max_length=500)] = ""
    incarnation: Whole = 0


class _Sessions(msgspec.Struct, forbid_unknown_fields=True):
    sessions: Annotated[list[_Session], Meta(max_length=MOST_ROWS)]


class _Steps(msgspec.Struct, forbid_unknown_fields=True):
    steps: Annotated[list[_Step], Meta(max_length=MOST_ROWS)]


_VERDICT = [field.name for field in fields(Verdict)]
_EVIDENCE = [field.name for field in fields(TrialEvidence) if field.name != "verdict"]


def run_body(card: TrainingRunCard) -> bytes:
    return msgspec.json.encode(_Run(**_shallow(card)))


def read_run(body: bytes) -> TrainingRunCard:
    """Errors: ``BodyError``."""
    return TrainingRunCard(**msgspec.structs.asdict(_read(body, _Run)))


def sessions_body(sessions: Iterable[TrainingSession]) -> bytes:
    return msgspec.json.encode(_Sessions([_flat(session) for session in sessions]))


def read_sessions(body: bytes) -> list[TrainingSession]:
    """Errors: ``BodyError``, also where a trajectory is no JSON object."""
    given = _read(body, _Sessions).sessions
    for number, one in enumerate(given):
        _check_object(one.trajectory, f"sessions[{number}].trajectory")
    return [_deep(one) for one in given]


def steps_body(steps: Iterable[TrainingStep]) -> bytes:
    return msgspec.json.encode(_Steps([_Step(**_shallow(step)) for step in steps]))


def read_steps(body: bytes) -> list[TrainingStep]:
    """Errors: ``BodyError``."""
    return [TrainingStep(**msgspec.structs.asdict(step)) for step in _read(body, _Steps).steps]


def _flat(session: TrainingSession) -> _Session:
    values = _shallow(session)
    evidence = _shallow(values.pop("evidence"))
    verdict = _shallow(evidence.pop("verdict"))
    texts = {name: evidence.pop(name).decode() for name in ("trajectory", "session")}
    return _Session(**values, **evidence, **verdict, **texts)


def _deep(given: _Session) -> TrainingSession:
    values = msgspec.structs.asdict(given)
    verdict = Verdict(**{name: values.pop(name) for name in _VERDICT})
    evidence = {name: values.pop(name) for name in _EVIDENCE}
    texts = {name: evidence.pop(name).encode() for name in ("trajectory", "session")}
    return TrainingSession(evidence=TrialEvidence(verdict=verdict, **evidence, **texts), **values)


def _shallow(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        raise BodyError(path.rstrip("`").removeprefix("$").lstrip(".") or "body", message) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("body", f"is not valid JSON: {error}") from None


def _check_object(text: str, where: str) -> None:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise BodyError(where, f"must be the text of a JSON object: {error}") from None
