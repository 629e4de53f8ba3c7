"""Trials: one row per attempt, there before the attempt starts, and written by the worker that holds its job alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from relaxforge.core.evidence import TrialEvidence
from relaxforge.store import artifacts, jobs
from relaxforge.store.database import Row, Transaction
from relaxforge.store.errors import LeaseLostError, MissingError
from relaxforge.store.evidence_columns import evidence_columns
from relaxforge.store.jobs import CancelMode, Lease

MOST_RETRIES = 3
"""New rows that an attempt gets when its worker is lost again and again."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A Trial that has not started. ``number`` counts from 1 within the run; ``attempt`` from 1 within its Task."""

    trial_id: UUID
    number: int
    task_index: int
    attempt: int
    retry: int
    seed: int
    world_seed: int


@dataclass(frozen=True, slots=True)
class Author:
    """Who makes the attempts of a run: agent and model, by name."""

    agent_name: str
    agent_version: str
    model_name: str


async def create_all(tx: Transaction, lease: Lease, run: Row, tasks: int, author: Author) -> None:
    """A row for every attempt of every Task of ``run``, unless it is there. Errors: ``LeaseLostError``."""
    await jobs.hold(tx, lease)
    configuration = run["configuration"]
    await tx.run(
        "trials.create", run_id=run["id"], environment_version_id=run["environment_version_id"], tasks=tasks,
        attempt_count=configuration["attempt_count"], seed=configuration["seed"], world_seed=run["world_seed"],
        agent_name=author.agent_name, agent_version=author.agent_version, model_name=author.model_name,
    )  # fmt: skip


async def planned(tx: Transaction, run_id: UUID) -> list[Planned]:
    """Attempts that have not started, in the order in which they should."""
    return [
        Planned(
            row["id"], row["trial_number"], row["task_index"], row["attempt_no"], row["retry_index"], row["seed"],
            row["world_seed"],
        )
        for row in await tx.all("trials.created", run_id=run_id)
    ]  # fmt: skip


async def start(tx: Transaction, lease: Lease, trial_id: UUID, session_key: str) -> CancelMode | None:
    """Note that an attempt starts now, unless its run was cancelled: then how. Errors: ``LeaseLostError``."""
    job = await jobs.hold(tx, lease)
    if job["cancel_mode"] is not None:
        mode: CancelMode = job["cancel_mode"]
        return mode
    if not await tx.run("trials.start", trial_id=trial_id, lease_token=lease.token, session_key=session_key):
        raise LeaseLostError(f"trial {trial_id} has ended or belongs to another worker; it is not started again")
    return None


async def phase(tx: Transaction, lease: Lease, trial_id: UUID, name: str) -> None:
    """What an attempt is doing (``environment``, ``agent``, ``evaluator``), for those who watch."""
    await tx.run("trials.phase", trial_id=trial_id, lease_token=lease.token, phase=name)


async def finish(
    tx: Transaction, lease: Lease, trial_id: UUID, evidence: TrialEvidence, *, again: bool = False
) -> None:
    """Keep an ended attempt: artifacts, Trial and rollout row, all or nothing. Doing it again changes nothing.

    ``again``: the attempt gets a new row, because its result was lost through a fault of ours.
    Errors: ``LeaseLostError`` when another worker has the job by now; the result is late, and not wanted.
    """
    standing = await tx.one("trials.standing", trial_id=trial_id)
    if standing is None:
        raise MissingError("trial", trial_id)
    if standing["lease_token"] == lease.token and standing["status"] != "running":
        return
    # Bodies first and the lock last: nobody waits for an upload.
    name = f"trial-{standing['trial_number']}"
    trajectory = await artifacts.put(tx, f"{name}-trajectory.json", "application/json", evidence.trajectory)
    session = await artifacts.put(tx, f"{name}-session.json", "application/json", evidence.session)
    await jobs.hold(tx, lease)
    kept = await tx.run(
        "trials.finish", trial_id=trial_id, lease_token=lease.token, trajectory_artifact_id=trajectory,
        session_artifact_id=session, **evidence_columns(evidence),
    )  # fmt: skip
    if not kept:
        raise LeaseLostError(f"trial {trial_id} was closed before its result came")
    await tx.run("trials.add_rollout", trial_id=trial_id)
    if again:
        await tx.run("trials.retry", trial_id=trial_id, most_retries=MOST_RETRIES)


async def lose(tx: Transaction, lease: Lease, run_id: UUID, message: str, *, trial_id: UUID | None = None) -> int:
    """Close attempts that nobody works on any more as ``worker_lost``, each followed by a new row; how many.

    ``trial_id`` ``None``: every running one of the run. Errors: ``LeaseLostError``.
    """
    await jobs.hold(tx, lease)
    lost = await tx.all("trials.lose", run_id=run_id, trial_id=trial_id, lease_token=lease.token, message=message)
    for row in lost:
        await tx.run("trials.add_rollout", trial_id=row["id"])
        await tx.run("trials.retry", trial_id=row["id"], most_retries=MOST_RETRIES)
    return len(lost)


async def close_open(tx: Transaction, run_id: UUID, category: str, message: str) -> None:
    """Close every attempt that has not ended, without a reward; each is a rollout row, too."""
    await tx.run("trials.close_open", run_id=run_id, category=category, message=message)


async def open_count(tx: Transaction, run_id: UUID) -> int:
    """Attempts that have not ended."""
    row = await tx.one("trials.open_count", run_id=run_id)
    return 0 if row is None else int(row["open"])


async def attempts(tx: Transaction, run_id: UUID) -> list[Row]:
    """Every attempt of a run in few columns, by Task, attempt and retry."""
    return await tx.all("trials.attempts", run_id=run_id)


async def get_trial(tx: Transaction, trial_id: UUID) -> Row:
    """Errors: ``MissingError``."""
    row = await tx.one("trials.get", trial_id=trial_id)
    if row is None:
        raise MissingError("trial", trial_id)
    return row


async def neighbours(tx: Transaction, trial: Row) -> Row:
    """``earlier_id`` and ``later_id`` of ``trial`` within its run, each ``None`` at an end."""
    evaluated = trial["evaluation_run_id"] is not None
    row = await tx.one(
        "trials.neighbours_in_evaluation" if evaluated else "trials.neighbours_in_training",
        run_id=trial["evaluation_run_id"] if evaluated else trial["training_run_id"],
        trial_id=trial["id"], created_at=trial["created_at"],
    )  # fmt: skip
    return row or {"earlier_id": None, "later_id": None}


async def list_trials(
    tx: Transaction,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
    evaluation_run_id: UUID | None = None,
    training_run_id: UUID | None = None,
    environment_id: UUID | None = None,
    environment_version_id: UUID | None = None,
    status: str | None = None,
    failure_category: str | None = None,
    mode: str | None = None,
    since: datetime | None = None,
) -> list[Row]:
    """Newest first."""
    at, identity = before or (None, None)
    return await tx.all(
        "trials.trials", before_at=at, before_id=identity, limit=limit, evaluation_run_id=evaluation_run_id,
        training_run_id=training_run_id, environment_id=environment_id, environment_version_id=environment_version_id,
        status=status, failure_category=failure_category, mode=mode, since=since,
    )  # fmt: skip
