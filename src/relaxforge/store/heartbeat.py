"""The sign of life of a worker: a thread with a connection of its own, which no busy event loop holds up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from relaxforge.core.errors import StorageError
from relaxforge.observe.log import get_logger
from relaxforge.store import jobs
from relaxforge.store.database import Database
from relaxforge.store.errors import LeaseLostError
from relaxforge.store.jobs import CancelMode, Lease

log = get_logger()

BEAT_S = 1.0
"""Seconds between two looks for a cancellation. The lease is renewed when a third of it has passed."""


class Heartbeat:
    """Renews a lease until it is stopped.

    ``cancelled`` hears the mode whenever it changes, ``lost`` that another worker has the job; both are called in the
    heartbeat's thread. A database that is away is asked again: the lease is lost only when the database says so.
    """

    def __init__(
        self,
        url: str,
        lease: Lease,
        lease_s: float,
        *,
        cancelled: Callable[[CancelMode], None],
        lost: Callable[[], None],
        beat_s: float = BEAT_S,
    ) -> None:
        self._url = url
        self._lease = lease
        self._lease_s = lease_s
        self._cancelled = cancelled
        self._lost = lost
        self._beat_s = min(beat_s, lease_s / 3)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat-{lease.job_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; a beat under way is finished."""
        self._stopping.set()

    def join(self) -> None:
        """Until it has ended. Blocks for at most one beat and one timeout of the database."""
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._beat())

    async def _beat(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    await self._connected()
                except StorageError as error:
                    log.warning("heartbeat_missed", job=str(self._lease.job_id), error=str(error))
                    await self._stopped()
        except LeaseLostError:
            self._lost()

    async def _connected(self) -> None:
        """Beat over one pool until it is stopped. Errors: ``StorageError``, ``LeaseLostError``."""
        database = Database(self._url, most=1, timeout_s=self._lease_s / 3)
        await database.open()
        renewed, known = time.monotonic() - self._lease_s, None
        try:
            while not await self._stopped():
                due = time.monotonic() - renewed >= self._lease_s / 3
                mode = await self._ask(database, renew=due)
                if due:
                    renewed = time.monotonic()
                if mode is not None and mode != known:
                    known = mode
                    self._cancelled(mode)
        finally:
            await database.close()

    async def _stopped(self) -> bool:
        """Whether it was stopped within one beat; a thread waits, so that the pool's own tasks go on."""
        return await asyncio.to_thread(self._stopping.wait, self._beat_s)

    async def _ask(self, database: Database, *, renew: bool) -> CancelMode | None:
        async with database.scope(self._lease.scope) as tx:
            return await (jobs.renew(tx, self._lease, self._lease_s) if renew else jobs.look(tx, self._lease))
