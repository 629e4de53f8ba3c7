"""Training runs that send their evidence: every Session once, however often it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import psycopg

from relaxforge.core.evidence import TrainingRunCard, TrainingSession, TrainingStep
from relaxforge.store import artifacts
from relaxforge.store.database import Row, Transaction
from relaxforge.store.errors import InvalidError, MissingError
from relaxforge.store.evidence_columns import evidence_columns


async def record_run(tx: Transaction, card: TrainingRunCard) -> UUID:
    """The row of a run, made when its ``source_key`` is new. Errors: ``MissingError`` without the organization."""
    given = {"run_name": card.name, "source_key": card.source_key, "configuration": card.configuration}
    try:
        row = await tx.one("training.record_run", **given)
    except psycopg.errors.ForeignKeyViolation as error:
        raise MissingError("organization", tx.scope and tx.scope.organization_id) from error
    assert row is not None  # noqa: S101 - INSERT ... DO UPDATE always returns its row
    return UUID(str(row["id"]))


async def add_sessions(tx: Transaction, run_id: UUID, sessions: Sequence[TrainingSession]) -> int:
    """Keep Sessions with artifacts and rollout rows, all or none; how many were new. Known ones stay as they are.

    Errors: ``MissingError``; ``InvalidError`` when the database cannot hold a value.
    """
    held = await tx.one("training.hold_run", run_id=run_id)  # One sender at a time, so that numbers count up.
    if held is None:
        raise MissingError("training run", run_id)
    by_key = {session.session_key: session for session in sessions}
    known = {row["session_key"] for row in await tx.all("training.known_sessions", run_id=run_id, keys=list(by_key))}
    new = [session for key, session in by_key.items() if key not in known]
    count = held["session_count"]
    for number, session in enumerate(new, start=count + 1):
        await _add(tx, run_id, number, session)
    await tx.run("training.touch_run", run_id=run_id, session_count=count + len(new))
    return len(new)


async def add_steps(tx: Transaction, run_id: UUID, steps: Sequence[TrainingStep]) -> int:
    """Keep the numbers of steps and evaluations; how many were new. Errors: ``MissingError``, ``InvalidError``."""
    if await tx.one("training.hold_run", run_id=run_id) is None:
        raise MissingError("training run", run_id)
    added = 0
    for step in steps:
        try:
            added += await tx.run(
                "training.add_step", run_id=run_id, kind=step.kind, step=step.step, step_name=step.name,
                incarnation=step.incarnation, metrics=step.metrics,
            )  # fmt: skip
        except (psycopg.DataError, psycopg.IntegrityError, ValueError) as error:
            raise InvalidError("steps", f"step {step.step} cannot be stored: {error}") from error
    return added


async def list_runs(tx: Transaction, *, before: tuple[datetime, UUID] | None, limit: int) -> list[Row]:
    """Newest first, each with its ``last_step`` (``None`` before the first one ended)."""
    at, identity = before or (None, None)
    return await tx.all("training.runs", run_id=None, before_at=at, before_id=identity, limit=limit)


async def get_run(tx: Transaction, run_id: UUID) -> Row:
    """One run as in the list, with ``outcomes``: Sessions by mode, status and failure. Errors: ``MissingError``."""
    row = await tx.one("training.runs", run_id=run_id, before_at=None, before_id=None, limit=1)
    if row is None:
        raise MissingError("training run", run_id)
    return {**row, "outcomes": await tx.all("training.outcomes", run_id=run_id)}


async def metric_names(tx: Transaction, run_id: UUID) -> list[str]:
    """What the newest steps and evaluations measured."""
    return [row["name"] for row in await tx.all("training.metric_names", run_id=run_id)]


async def series(
    tx: Transaction, run_id: UUID, names: Sequence[str], kind: Literal["step", "eval"] = "step"
) -> list[Row]:
    """The metrics ``names`` of every step, oldest first; of a step that a resumed run repeated, the last attempt."""
    return await tx.all("training.series", run_id=run_id, names=list(names), kind=kind)


async def _add(tx: Transaction, run_id: UUID, number: int, session: TrainingSession) -> None:
    evidence, name = session.evidence, f"trial-{number}"
    trajectory = await artifacts.put(tx, f"{name}-trajectory.json", "application/json", evidence.trajectory)
    whole = None
    if evidence.session:
        whole = await artifacts.put(tx, f"{name}-session.json", "application/json", evidence.session)
    try:
        row = await tx.one(
            "training.add_session", run_id=run_id, trial_number=number, trajectory_artifact_id=trajectory,
            session_artifact_id=whole, **_columns(session), **evidence_columns(evidence),
        )  # fmt: skip
    except (psycopg.DataError, psycopg.IntegrityError, ValueError) as error:
        raise InvalidError("sessions", f"{session.session_key} cannot be stored: {error}") from error
    assert row is not None  # noqa: S101 - the run is held
    await tx.run("training.add_rollout", trial_id=row["id"])


def _columns(session: TrainingSession) -> dict[str, Any]:
    names = ("session_key", "rollout_step", "group_key", "mode", "task_index", "attempt_no", "seed", "world_seed")
    return {name: getattr(session, name) for name in names}
