"""What a worker writes about one job. A database that is away is waited for; a lease that is gone ends everything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

from relaxforge.core.errors import StorageError
from relaxforge.core.evidence import TrialEvidence
from relaxforge.core.sessions import FailureCategory
from relaxforge.credit.summary import summarise
from relaxforge.observe.log import get_logger
from relaxforge.store import evaluations, jobs, trials
from relaxforge.store.database import Database, Row, Transaction
from relaxforge.store.errors import LeaseLostError
from relaxforge.store.evaluations import RunEnd
from relaxforge.store.jobs import CancelMode, Lease
from relaxforge.store.trials import Author, Planned

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

log = get_logger()


class TrialBook:
    """The store's side of one claimed job.

    Every write is repeated while the database is away, until ``give_up`` is set: then ``StorageError``. Errors of every
    method: ``LeaseLostError`` once another worker has the job.
    """

    def __init__(self, database: Database, lease: Lease) -> None:
        self.lease = lease
        self.give_up = asyncio.Event()
        self.ends_as: RunEnd = "succeeded"
        """What the run is when its last attempt has ended."""
        self.closed = False
        """Whether the run has ended, with its summary."""
        self._database = database

    async def read(self) -> tuple[Row, Row]:
        """The job and its evaluation run."""

        async def read(tx: Transaction) -> tuple[Row, Row]:
            job = await jobs.hold(tx, self.lease)
            return job, await evaluations.get_run(tx, job["evaluation_run_id"])

        return await self.write(read)

    async def open(self, run_id: UUID, earlier: str) -> int:
        """The run is under way; attempts of an earlier worker are lost, and get new rows. How many were.

        ``earlier`` says why, as the failure message of those attempts.
        """

        async def begin(tx: Transaction) -> int:
            lost = await trials.lose(tx, self.lease, run_id, earlier)
            await evaluations.begin(tx, run_id)
            return lost

        return await self.write(begin)

    async def plan(self, run: Row, tasks: int, author: Author) -> list[Planned]:
        """What is to be tried, every attempt with its row. Nothing has started yet."""

        async def plan(tx: Transaction) -> list[Planned]:
            await trials.create_all(tx, self.lease, run, tasks, author)
            return await trials.planned(tx, run["id"])

        return await self.write(plan)

    async def started(self, trial: Planned, session_key: str) -> CancelMode | None:
        """Note that an attempt starts now, unless its run was cancelled: then how."""
        return await self.write(lambda tx: trials.start(tx, self.lease, trial.trial_id, session_key))

    async def phase(self, trial: Planned, name: str) -> None:
        """What the attempt is doing now; not worth waiting for."""
        with suppress(StorageError):
            async with self._database.scope(self.lease.scope) as tx:
                await trials.phase(tx, self.lease, trial.trial_id, name)

    async def finished(self, run_id: UUID, trial: Planned, evidence: TrialEvidence) -> None:
        """Keep an ended attempt; with the last one the run and its job end, too. A late result is dropped and counted.

        An attempt that was lost with a part of this worker gets a new row.
        """

        async def finish(tx: Transaction) -> bool:
            lost = evidence.verdict.failure_category == FailureCategory.WORKER_LOST
            await trials.finish(tx, self.lease, trial.trial_id, evidence, again=lost)
            if await trials.open_count(tx, run_id):
                return False
            if not await self._has_ended(tx, run_id):
                await self._end(tx, run_id, self.ends_as, None)
            return True

        try:
            self.closed = await self.write(finish) or self.closed
        except LeaseLostError:
            await self._late(trial)
            raise

    async def close(self, run_id: UUID, status: RunEnd, category: FailureCategory, message: str) -> None:
        """End the run and its job; attempts that have not ended are closed with ``category``, without a reward."""

        async def close(tx: Transaction) -> None:
            if await self._has_ended(tx, run_id):
                return
            await jobs.hold(tx, self.lease)
            await trials.close_open(tx, run_id, str(category), message)
            await self._end(tx, run_id, status, None if status == "cancelled" else message)

        await self.write(close)
        self.closed = True

    async def release(self, run_id: UUID, message: str, *, counts: bool, delay_s: float = 0.0) -> None:
        """Give the job back; attempts under way are lost, and get new rows."""

        async def release(tx: Transaction) -> None:
            await trials.lose(tx, self.lease, run_id, message)
            await evaluations.wait_again(tx, run_id, message)
            await jobs.release(tx, self.lease, error=message, counts=counts, delay_s=delay_s)

        await self.write(release)

    async def write(self, step: Callable[[Transaction], Awaitable[T]]) -> T:
        """One transaction, repeated while the database is away. ``step`` must bear being done twice."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                async with self._database.scope(self.lease.scope) as tx:
                    return await step(tx)
            except StorageError as error:
                log.warning("database_away", job=str(self.lease.job_id), error=str(error))
                if await self._given_up(pause):
                    raise
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _given_up(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.give_up.wait(), seconds)
        return self.give_up.is_set()

    async def _has_ended(self, tx: Transaction, run_id: UUID) -> bool:
        """Also when a connection broke after a commit, whose transaction is then done a second time."""
        return (await evaluations.get_run(tx, run_id))["ended_at"] is not None

    async def _end(self, tx: Transaction, run_id: UUID, status: RunEnd, error: str | None) -> None:
        await evaluations.conclude(tx, run_id, status, summarise, error)
        await jobs.finish(tx, self.lease, status, error)

    async def _late(self, trial: Planned) -> None:
        log.warning("late_result_dropped", job=str(self.lease.job_id), trial=str(trial.trial_id))
        await self.write(lambda tx: jobs.count_late(tx, self.lease))
