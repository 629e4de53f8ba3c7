"""The worker: claims evaluation jobs, one after the other, and runs them until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID, uuid4

from relaxforge.agents.config import AgentConfig
from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.engine.config import EngineConfig
from relaxforge.observe.log import get_logger
from relaxforge.render.config import RenderConfig
from relaxforge.runs.engines import EngineShelf
from relaxforge.runs.evaluation_job import EvaluationJob, JobParts
from relaxforge.runs.worker_config import WorkerConfig
from relaxforge.store import guard, jobs
from relaxforge.store.bell import JobBell
from relaxforge.store.database import Database
from relaxforge.store.heartbeat import Heartbeat
from relaxforge.store.jobs import CancelMode, Lease
from relaxforge.store.vault import Vault

READING = RenderConfig(agentic_tool_call_parser="auto", agentic_reasoning_parser="auto")
"""An environment knows nothing of models: what their templates spell is read as tool calls and reasoning."""

log = get_logger()


class Worker:
    """One worker process. ``stop`` may be called at any time, on its event loop."""

    def __init__(
        self,
        url: str,
        config: WorkerConfig,
        agents: AgentConfig,
        engine: EngineConfig,
        *,
        organizations: Sequence[UUID] = (),
        vault: Vault | None = None,
        artifact_url: str | None = None,
    ) -> None:
        if len(organizations) != 1 and agents.agent_sandbox != "bwrap":
            raise ConfigError(
                "a worker for several organizations runs the programs of people who do not trust each other; it needs "
                "--agent-sandbox bwrap, or --organization ID for one organization alone"
            )
        self.worker_id = uuid4().hex[:16]
        self._url = url
        self._config = config
        self._agents = agents
        self._engine = engine
        self._organizations: list[UUID | None] = list(organizations) or [None]
        self._vault = vault
        self._database = Database(url, most=4, artifact_url=artifact_url)
        self._bell = JobBell(url)
        self._stopping = asyncio.Event()
        self._job: EvaluationJob | None = None
        self._stops = 0

    async def run(self) -> None:
        """Until it is stopped. Errors: ``ConfigError`` for a login that sees too much; at first ``StorageError``."""
        async with self._database:
            async with self._database.outside() as tx:
                await guard.check(tx, "worker")
            with own_folder(Path(self._config.work_dir), self.worker_id) as folder:
                shelf = EngineShelf(self._config, self._engine, READING, folder / "engine.log")
                parts = JobParts(self._database, self._vault, self._config, self._agents, shelf, folder)
                log.info("worker_started", worker=self.worker_id)
                try:
                    await self._serve(parts)
                finally:
                    await shelf.close()
                    await self._bell.close()
                    log.info("worker_ended", worker=self.worker_id)

    def stop(self) -> None:
        """Once: claim no more, let Trials finish for the grace period. Twice: end them now, and give the job back."""
        self._stops += 1
        self._stopping.set()
        if self._job is not None:
            self._job.stop(at_once=self._stops > 1)
            if self._stops == 1:
                asyncio.get_running_loop().call_later(self._config.grace, self.stop)

    async def _serve(self, parts: JobParts) -> None:
        while not self._stopping.is_set():
            lease = await self._claimed()
            if lease is None:
                await self._idle()
            else:
                await self._work(lease, parts)

    async def _claimed(self) -> Lease | None:
        for organization in tuple(self._organizations):
            try:
                lease = await jobs.claim(self._database, self.worker_id, self._config.lease, organization)
            except StorageError as error:
                log.warning("database_away", worker=self.worker_id, error=str(error))
                return None
            if lease is not None:
                self._organizations.remove(organization)
                self._organizations.append(organization)
                return lease
        return None

    async def _idle(self) -> None:
        waits = [asyncio.create_task(one) for one in (self._bell.wait(self._config.poll), self._stopping.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    async def _work(self, lease: Lease, parts: JobParts) -> None:
        job = self._job = EvaluationJob(lease, parts)
        loop = asyncio.get_running_loop()

        def cancelled(mode: CancelMode) -> None:
            loop.call_soon_threadsafe(job.cancel, mode)

        def lost() -> None:
            loop.call_soon_threadsafe(job.lost)

        heartbeat = Heartbeat(self._url, lease, self._config.lease, cancelled=cancelled, lost=lost)
        heartbeat.start()
        try:
            await job.run()
        finally:
            self._job = None
            await asyncio.to_thread(heartbeat.join)


@contextlib.contextmanager
def own_folder(work_dir: Path, worker_id: str) -> Iterator[Path]:
    """The folder of this process, locked. What dead workers left is removed, unless evidence is in it.

    Errors: ``StorageError``.
    """
    folder = work_dir / worker_id
    try:
        work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _one_at_a_time(work_dir):
            for left in _abandoned(work_dir):
                _tidy(left)
            folder.mkdir(mode=0o700)
            lock = (folder / ".lock").open("w")
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise StorageError(f"--work-dir {work_dir} cannot be used: {error.strerror or error}") from error
    with lock:
        yield folder
        if not any(path.is_dir() for path in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _one_at_a_time(work_dir: Path) -> Iterator[None]:
    """A folder that another worker is just making looks abandoned until it is locked."""
    descriptor = os.open(work_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _abandoned(work_dir: Path) -> Iterator[Path]:
    for lock in work_dir.glob("*/.lock"):
        # One that ends just now removes its own folder.
        with contextlib.suppress(BlockingIOError, FileNotFoundError), lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield lock.parent


def _tidy(folder: Path) -> None:
    if any(path.stat().st_size for path in folder.glob("*/rollouts/*.jsonl")):
        log.warning("evidence_left", path=str(folder))
    else:
        shutil.rmtree(folder, ignore_errors=True)
