"""Jobs: enqueued by the workspace, claimed by workers under a lease. Every write of a worker carries its lease token.

A worker whose lease was given to another one cannot write any more: its token matches nothing, and it gets
``LeaseLostError``. The clock of leases is the database's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from relaxforge.store.database import Database, Row, Scope, Transaction
from relaxforge.store.errors import InvalidError, LeaseLostError

CancelMode = Literal["finish_running", "at_once"]
JobEnd = Literal["succeeded", "failed", "cancelled"]

CANCEL_MODES = ("finish_running", "at_once")
CHANNEL = "relaxforge_jobs"
"""Where new jobs are announced; a hint, workers look by themselves anyway."""

MAX_ATTEMPTS = 3
"""How often a job is begun before it counts as failed."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One worker's right to a job, until the database gives it to another."""

    job_id: UUID
    organization_id: UUID
    token: UUID

    @property
    def scope(self) -> Scope:
        return Scope(self.organization_id)


async def enqueue(
    tx: Transaction,
    evaluation_run_id: UUID,
    *,
    idempotency_key: str | None = None,
    priority: int = 0,
    max_attempts: int = MAX_ATTEMPTS,
) -> UUID:
    """Queue a job for a run; idle workers hear of it once the transaction commits."""
    row = await tx.one(
        "jobs.enqueue", evaluation_run_id=evaluation_run_id, priority=priority, max_attempts=max_attempts,
        idempotency_key=idempotency_key,
    )  # fmt: skip
    assert row is not None  # noqa: S101  (INSERT ... RETURNING gives a row or raises)
    await tx.run("jobs.announce")
    job_id: UUID = row["id"]
    return job_id


async def earlier(tx: Transaction, idempotency_key: str | None) -> Row | None:
    """The job that was enqueued under this key. Until the transaction ends, nobody else enqueues one under it."""
    if idempotency_key is None:
        return None
    await tx.run("jobs.lock_key", idempotency_key=idempotency_key)
    return await tx.one("jobs.by_key", idempotency_key=idempotency_key)


async def claim(database: Database, worker_id: str, lease_s: float, organization_id: UUID | None) -> Lease | None:
    """The next job, of one organization or (``None``) of any; ``None`` when there is nothing to do.

    A job beyond its ``max_attempts`` is handed out, too: whoever gets it closes it.
    """
    async with database.outside() as tx:
        row = await tx.one("jobs.claim", worker_id=worker_id, lease_s=lease_s, only_organization=organization_id)
    if row is None:
        return None
    return Lease(row["claimed_job_id"], row["claimed_organization_id"], row["claimed_lease_token"])


async def hold(tx: Transaction, lease: Lease) -> Row:
    """The job's row, which nobody changes or claims before the transaction ends. Errors: ``LeaseLostError``."""
    row = await tx.one("jobs.hold", job_id=lease.job_id, lease_token=lease.token)
    if row is None:
        raise _lost(lease)
    return row


async def renew(tx: Transaction, lease: Lease, lease_s: float) -> CancelMode | None:
    """Prolong the lease; whether somebody asked to cancel. Errors: ``LeaseLostError``."""
    row = await tx.one("jobs.renew", job_id=lease.job_id, lease_token=lease.token, lease_s=lease_s)
    return _cancel_mode(lease, row)


async def look(tx: Transaction, lease: Lease) -> CancelMode | None:
    """Whether somebody asked to cancel; writes nothing. Errors: ``LeaseLostError``."""
    return _cancel_mode(lease, await tx.one("jobs.look", job_id=lease.job_id, lease_token=lease.token))


async def finish(tx: Transaction, lease: Lease, state: JobEnd, error: str | None = None) -> None:
    """End the job for good. Errors: ``LeaseLostError``."""
    if not await tx.run("jobs.finish", job_id=lease.job_id, lease_token=lease.token, state=state, error=error):
        raise _lost(lease)


async def release(
    tx: Transaction, lease: Lease, *, error: str | None = None, delay_s: float = 0.0, counts: bool = True
) -> None:
    """Give the job back to the queue, to be claimed after ``delay_s``. Errors: ``LeaseLostError``.

    ``counts``: whether this was one of the job's attempts; a worker that stops in good order says no.
    """
    released = await tx.run(
        "jobs.release", job_id=lease.job_id, lease_token=lease.token, error=error, delay_s=delay_s, counts=counts
    )
    if not released:
        raise _lost(lease)
    await tx.run("jobs.announce")


async def cancel(tx: Transaction, job_id: UUID, mode: str) -> bool:
    """Ask for the end of a job. Whether that is all: a queued job ends here, a running one through its worker.

    ``at_once`` wins over an earlier ``finish_running``. Errors: ``InvalidError``.
    """
    if mode not in CANCEL_MODES:
        raise InvalidError("mode", f"must be one of {', '.join(CANCEL_MODES)}, got {mode!r}")
    if await tx.run("jobs.cancel_queued", job_id=job_id, mode=mode):
        return True
    await tx.run("jobs.cancel_running", job_id=job_id, mode=mode)
    return False


async def count_late(tx: Transaction, lease: Lease) -> None:
    """Note that a result came after the lease was gone."""
    await tx.run("jobs.count_late", job_id=lease.job_id)


def _cancel_mode(lease: Lease, row: Row | None) -> CancelMode | None:
    if row is None:
        raise _lost(lease)
    mode: CancelMode | None = row["cancel_mode"]
    return mode


def _lost(lease: Lease) -> LeaseLostError:
    return LeaseLostError(f"job {lease.job_id}: the lease of this worker has ended; another worker has the job now")
