"""Evaluator configurations and evaluation runs: what is to be tried, how often, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from relaxforge.store import jobs, trials
from relaxforge.store.database import Row, Transaction
from relaxforge.store.errors import ConflictError, InvalidError, MissingError

RunEnd = Literal["succeeded", "failed", "cancelled"]
Summarise = Callable[[Sequence[Row], int, float], dict[str, Any]]
"""From the rows of ``trials.attempts``, the attempt count and the threshold to the summary of a run."""

RESET_MODES = ("new_workspace", "new_world")
MOST_ATTEMPTS = 8
MOST_CONCURRENT = 64
LARGEST_SEED = 2**31 - 1
_SNAPSHOT = (
    "name", "attempt_count", "agent_name", "agent_version", "model", "seed", "concurrency", "budget", "pass_threshold",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Started:
    """A run that was enqueued; ``created`` is false when the idempotency key had been used for it before."""

    evaluation_run_id: UUID
    job_id: UUID
    created: bool


async def create_configuration(
    tx: Transaction,
    *,
    environment_id: UUID,
    name: str,
    attempt_count: int,
    model: Mapping[str, Any],
    agent_name: str,
    agent_version: str,
    seed: int = 0,
    world_seed: int = 0,
    concurrency: int = 2,
    budget: Mapping[str, Any] | None = None,
    pass_threshold: float = 1.0,
) -> Row:
    """How an environment is to be evaluated. Errors: ``InvalidError``, ``MissingError``, ``ConflictError``."""
    if not name.strip():
        raise InvalidError("name", "is empty")
    _within("attemptCount", attempt_count, 1, MOST_ATTEMPTS)
    _within("concurrency", concurrency, 1, MOST_CONCURRENT)
    _within("seed", seed, 0, LARGEST_SEED - MOST_ATTEMPTS)
    _within("worldSeed", world_seed, 0, LARGEST_SEED)
    if not (math.isfinite(pass_threshold) and 0 < pass_threshold <= 1):
        raise InvalidError("passThreshold", f"must be more than 0 and at most 1, got {pass_threshold}")
    if await tx.one("evaluations.environment", environment_id=environment_id) is None:
        raise MissingError("environment", environment_id)
    row = await tx.one(
        "evaluations.create_configuration", environment_id=environment_id, name=name, attempt_count=attempt_count,
        agent_name=agent_name, agent_version=agent_version, model=dict(model), seed=seed, world_seed=world_seed,
        concurrency=concurrency, budget=dict(budget or {}), pass_threshold=pass_threshold,
    )  # fmt: skip
    if row is None:
        raise ConflictError(f"the environment has an evaluator configuration {name!r} already; choose another name")
    return row


async def get_configuration(tx: Transaction, configuration_id: UUID) -> Row:
    """Errors: ``MissingError``."""
    row = await tx.one("evaluations.configuration", configuration_id=configuration_id)
    if row is None:
        raise MissingError("evaluator configuration", configuration_id)
    return row


async def list_configurations(
    tx: Transaction, *, before: tuple[datetime, UUID] | None, limit: int, environment_id: UUID | None = None
) -> list[Row]:
    """Newest first."""
    at, identity = before or (None, None)
    return await tx.all(
        "evaluations.configurations", before_at=at, before_id=identity, limit=limit, environment_id=environment_id
    )


async def start_run(
    tx: Transaction,
    *,
    environment_version_id: UUID,
    evaluator_configuration_id: UUID,
    idempotency_key: str | None = None,
    created_by: UUID | None = None,
) -> Started:
    """Enqueue a run of one environment version; what the configuration says now is what it will always say.

    Errors: ``MissingError``, ``InvalidError``, ``ConflictError`` when the key was used for something else.
    """
    if (job := await jobs.earlier(tx, idempotency_key)) is not None:
        run = await get_run(tx, job["evaluation_run_id"])
        same = (environment_version_id, evaluator_configuration_id, None)
        asked = (run["environment_version_id"], run["evaluator_configuration_id"], run["reset_of_id"])
        return _again(job, same=same == asked)
    configuration = await get_configuration(tx, evaluator_configuration_id)
    version = await tx.one("evaluations.version", version_id=environment_version_id)
    if version is None:
        raise MissingError("environment version", environment_version_id)
    if version["environment_id"] != configuration["environment_id"]:
        raise InvalidError("evaluatorConfigurationId", "names a configuration of another environment")
    return await _enqueue(
        tx, idempotency_key, environment_version_id=environment_version_id,
        evaluator_configuration_id=evaluator_configuration_id, created_by=created_by, reset_of_id=None, reset_mode=None,
        configuration={name: configuration[name] for name in _SNAPSHOT}, world_seed=configuration["world_seed"],
    )  # fmt: skip


async def reset_run(
    tx: Transaction, run_id: UUID, mode: str, *, idempotency_key: str | None = None, created_by: UUID | None = None
) -> Started:
    """Enqueue another run like this one, on the same environment version.

    ``new_workspace`` keeps the seed of the world, ``new_world`` takes the next one. Errors: as ``start_run``.
    """
    if mode not in RESET_MODES:
        raise InvalidError("mode", f"must be one of {', '.join(RESET_MODES)}, got {mode!r}")
    if (job := await jobs.earlier(tx, idempotency_key)) is not None:
        run = await get_run(tx, job["evaluation_run_id"])
        return _again(job, same=(run["reset_of_id"], run["reset_mode"]) == (run_id, mode))
    run = await get_run(tx, run_id)
    return await _enqueue(
        tx, idempotency_key, environment_version_id=run["environment_version_id"],
        evaluator_configuration_id=run["evaluator_configuration_id"], created_by=created_by, reset_of_id=run_id,
        reset_mode=mode, configuration=run["configuration"],
        world_seed=run["world_seed"] + (1 if mode == "new_world" else 0),
    )  # fmt: skip


async def get_run(tx: Transaction, run_id: UUID) -> Row:
    """The run with its environment and its job. Errors: ``MissingError``."""
    row = await tx.one("evaluations.run", run_id=run_id)
    if row is None:
        raise MissingError("evaluation run", run_id)
    return row


async def list_runs(
    tx: Transaction,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
    environment_id: UUID | None = None,
    environment_version_id: UUID | None = None,
    evaluator_configuration_id: UUID | None = None,
    status: str | None = None,
) -> list[Row]:
    """Newest first."""
    at, identity = before or (None, None)
    return await tx.all(
        "evaluations.runs", before_at=at, before_id=identity, limit=limit, environment_id=environment_id,
        environment_version_id=environment_version_id, evaluator_configuration_id=evaluator_configuration_id,
        status=status,
    )  # fmt: skip


async def cancel_run(tx: Transaction, run_id: UUID, mode: str, summarise: Summarise) -> Row:
    """Cancel a run: one that waits ends here, one that runs ends through its worker; one that has ended stays so.

    ``finish_running`` lets attempts under way finish, ``at_once`` ends them. Errors: ``MissingError``,
    ``InvalidError``.
    """
    run = await get_run(tx, run_id)
    if run["job_id"] is not None and await jobs.cancel(tx, run["job_id"], mode):
        await trials.close_open(tx, run_id, "cancelled", "cancelled before it started")
        await conclude(tx, run_id, "cancelled", summarise)
    return await get_run(tx, run_id)


async def begin(tx: Transaction, run_id: UUID) -> None:
    """The run is under way."""
    await tx.run("evaluations.begin_run", run_id=run_id)


async def wait_again(tx: Transaction, run_id: UUID, error: str) -> None:
    """The run waits for another worker; ``error`` says why this one did not come to its end."""
    await tx.run("evaluations.wait_again", run_id=run_id, error=error)


async def conclude(
    tx: Transaction, run_id: UUID, status: RunEnd, summarise: Summarise, error: str | None = None
) -> None:
    """End a run with the summary of its attempts as they stand; ``error`` says why it failed."""
    run = await get_run(tx, run_id)
    configuration = run["configuration"]
    attempts = await trials.attempts(tx, run_id)
    summary = summarise(attempts, configuration["attempt_count"], configuration["pass_threshold"])
    await tx.run("evaluations.end_run", run_id=run_id, status=status, summary=summary, error=error)


async def _enqueue(tx: Transaction, idempotency_key: str | None, **run: Any) -> Started:
    row = await tx.one("evaluations.create_run", **run)
    assert row is not None  # noqa: S101  (INSERT ... RETURNING gives a row or raises)
    job_id = await jobs.enqueue(tx, row["id"], idempotency_key=idempotency_key)
    return Started(row["id"], job_id, created=True)


def _again(job: Row, *, same: bool) -> Started:
    if not same:
        raise ConflictError(
            f"Idempotency-Key {job['idempotency_key']!r} was used for evaluation run {job['evaluation_run_id']}, which "
            "is another request; use a new key"
        )
    return Started(job["evaluation_run_id"], job["id"], created=False)


def _within(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidError(field, f"must be a whole number from {least} to {most}, got {value}")
