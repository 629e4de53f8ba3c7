"""One claimed job, from its row to the last attempt's evidence: files first, then the database."""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.folder import discard_folder
from relaxforge.core.errors import ConfigError, RelaxForgeError, StorageError
from relaxforge.core.sessions import Failure, FailureCategory
from relaxforge.engine.choice import read_budget, read_model
from relaxforge.environments.bundle import open_bundle
from relaxforge.export.evidence import evidence_of
from relaxforge.export.log import Log, read_log
from relaxforge.observe.log import get_logger
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.record import dump_line
from relaxforge.rollout.trial_tasks import tasks_of
from relaxforge.runs.assignment import Assignment
from relaxforge.runs.attempts import Attempts, open_attempts
from relaxforge.runs.directory import FileSink, RunDirectory, open_run_directory
from relaxforge.runs.engines import EngineShelf
from relaxforge.runs.trial_book import TrialBook
from relaxforge.runs.worker_config import WorkerConfig
from relaxforge.store import artifacts, environments
from relaxforge.store.database import Database, Row, Transaction
from relaxforge.store.errors import LeaseLostError, MissingError
from relaxforge.store.jobs import CancelMode, Lease
from relaxforge.store.trials import Author, Planned
from relaxforge.store.vault import Vault

RETRY_DELAY_S = 5.0
GIVE_UP_S = 10.0
"""Seconds that a stopped job still tries to reach a database that is away."""

_PHASES = {"world": "environment"}
"""What an attempt does while this part of it runs, where that is not the name of the part."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class JobParts:
    """What a worker lends to its jobs."""

    database: Database
    vault: Vault | None
    worker: WorkerConfig
    agents: AgentConfig
    shelf: EngineShelf
    folder: Path


class EvaluationJob:
    """Runs the attempts of one job. ``cancel``, ``stop`` and ``lost`` may be called at any time, on its event loop."""

    def __init__(self, lease: Lease, parts: JobParts) -> None:
        self._parts = parts
        self._book = TrialBook(parts.database, lease)
        self._folder = parts.folder / f"{lease.job_id}-{lease.token.hex[:8]}"
        self._why: Literal["cancelled", "stopped"] | None = None
        self._killed: Failure | None = None
        self._lanes: list[asyncio.Task[None]] = []
        self._storing: set[asyncio.Task[None]] = set()
        self._trials: dict[str, Planned] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        self._left = 0

    def cancel(self, mode: CancelMode) -> None:
        """Start nothing more; ``at_once`` also ends what is under way."""
        self._why = self._why or "cancelled"
        if mode == "at_once":
            self._book.ends_as = "cancelled"
            self._kill(Failure(FailureCategory.CANCELLED, "the evaluation run was cancelled"))

    def stop(self, *, at_once: bool) -> None:
        """The worker ends: start nothing more, and give the job back; ``at_once`` loses what is under way."""
        self._why = self._why or "stopped"
        if at_once:
            asyncio.get_running_loop().call_later(GIVE_UP_S, self._book.give_up.set)
            self._kill(Failure(FailureCategory.WORKER_LOST, "the worker was stopped"))

    def lost(self) -> None:
        """Another worker has the job; what is under way is of no use any more."""
        self._why = "stopped"
        self._book.give_up.set()
        self._kill(Failure(FailureCategory.WORKER_LOST, "the lease of this worker ended"))

    async def run(self) -> None:
        """Until the job has ended, was given back, or is somebody else's. Errors: none of ours is let through."""
        job_id = str(self._book.lease.job_id)
        try:
            await self._work()
        except LeaseLostError as error:
            log.warning("lease_lost", job=job_id, error=str(error))
        except StorageError as error:
            log.warning("job_abandoned", job=job_id, error=str(error))
        if self._left:
            log.warning("evidence_left", job=job_id, attempts=self._left, path=str(self._folder))
        else:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _work(self) -> None:
        job, run = await self._book.read()
        run_id: UUID = run["id"]
        await self._book.open(run_id, ": ".join(filter(None, ("the worker was lost", job["last_error"]))))
        if job["attempt"] > job["max_attempts"]:
            reason = job["last_error"] or "its worker was lost"
            message = f"the job was begun {job['max_attempts']} times without coming to an end; the last time: {reason}"
            await self._book.close(run_id, "failed", FailureCategory.WORKER_LOST, message)
            return
        if job["cancel_mode"] is not None:
            self.cancel(job["cancel_mode"])
        log.info("job_started", job=str(job["id"]), run=str(run_id), attempt=job["attempt"])
        try:
            if self._why is None:
                await self._evaluate(run, incarnation=job["attempt"] - 1)
        except (ConfigError, MissingError) as error:
            log.warning("job_failed", job=str(job["id"]), error=str(error))
            await self._book.close(run_id, "failed", FailureCategory.ENV_SETUP, str(error))
        except LeaseLostError:
            raise
        except RelaxForgeError as error:
            await self._book.release(run_id, str(error), counts=True, delay_s=RETRY_DELAY_S * job["attempt"])
            log.warning("job_released", job=str(job["id"]), error=str(error))
        except Exception as error:  # a fault of ours costs this job an attempt, not the worker its life
            log.exception("job_crashed", job=str(job["id"]))
            reason = f"{type(error).__name__}: {error} (this is a bug in relaxforge)"
            await self._book.release(run_id, reason, counts=True, delay_s=RETRY_DELAY_S * job["attempt"])
        else:
            await self._settle(run_id)

    async def _settle(self, run_id: UUID) -> None:
        if self._book.closed:
            return
        if self._why == "stopped":
            await self._book.release(run_id, "the worker was stopped", counts=False)
            log.info("job_released", job=str(self._book.lease.job_id), error="the worker was stopped")
        elif self._why == "cancelled":
            await self._book.close(run_id, "cancelled", FailureCategory.CANCELLED, "cancelled before it started")
        else:
            await self._book.close(run_id, "succeeded", FailureCategory.WORKER_LOST, "nothing was left to try")

    async def _evaluate(self, run: Row, incarnation: int) -> None:
        """Errors: ``ConfigError`` for what will not get better, other ``RelaxForgeError`` for what may."""
        with open_run_directory(self._folder, "") as opened:
            directory = replace(opened, incarnation=incarnation)
            given = await self._assignment(run)
            model = await self._parts.shelf.take(given, directory.path)
            sound = False
            try:
                async with open_attempts(given, model, self._parts.agents, directory, self._tell) as attempts:
                    await self._try_all(run, given, attempts, directory)
                sound = True
            finally:
                await self._parts.shelf.put_back(model, sound=sound)

    async def _assignment(self, run: Row) -> Assignment:
        version, package, secrets = await self._book.write(lambda tx: self._fetch(tx, run))
        bundle = await asyncio.to_thread(open_bundle, package, bytes(version["digest"]))
        if missing := [name for name in bundle.manifest.secrets.required if name not in secrets]:
            raise ConfigError(f"the environment needs the secrets {', '.join(missing)}; set them and run again")
        configuration = run["configuration"]
        return Assignment(
            bundle, tasks_of(bundle), read_model(configuration["model"]), read_budget(configuration["budget"]), secrets
        )

    async def _fetch(self, tx: Transaction, run: Row) -> tuple[Row, bytes, dict[str, str]]:
        version = await environments.get_version(tx, run["environment_version_id"])
        package = await artifacts.get(tx, version["bundle_artifact_id"])
        environment_id, vault = version["environment_id"], self._parts.vault
        if vault is not None:
            return version, package.body, await environments.read_secrets(tx, vault, environment_id)
        if await environments.list_secrets(tx, environment_id):
            raise ConfigError("the environment has secrets, and this worker has no key file (--secrets-key-file)")
        return version, package.body, {}

    async def _try_all(self, run: Row, given: Assignment, attempts: Attempts, directory: RunDirectory) -> None:
        configuration = run["configuration"]
        author = Author(configuration["agent_name"], configuration["agent_version"], given.choice.label)
        sink = FileSink(directory.dump_path("eval", None), "reset the evaluation run")
        work = _Work(run["id"], attempts, directory, sink, tuple(given.secrets.values()))
        lanes = min(configuration["concurrency"], self._parts.worker.concurrency)
        try:
            # Attempts that are lost here, with a part of this worker, come back as new rows.
            while self._goes_on and (planned := await self._book.plan(run, len(given.tasks), author)):
                queue = deque(planned)
                await self._together([self._lane(work, queue) for _ in range(min(lanes, len(queue)))])
        finally:
            sink.close()

    @property
    def _goes_on(self) -> bool:
        return self._why is None and not self._book.closed

    async def _together(self, work: list[Coroutine[Any, Any, None]]) -> None:
        """Run lanes side by side until all evidence is stored; the first error ends them. Being killed is none."""
        self._lanes = [asyncio.create_task(one) for one in work]
        if self._killed:
            self._kill(self._killed)
        try:
            await asyncio.wait(self._lanes, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for lane in self._lanes:
                lane.cancel()
            ended = await asyncio.gather(*self._lanes, return_exceptions=True)
            await asyncio.gather(*self._storing, return_exceptions=True)
        for error in (self._fault, *ended):
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error

    async def _lane(self, work: _Work, queue: deque[Planned]) -> None:
        while queue and self._goes_on:
            trial = queue.popleft()
            number, session_key = work.attempts.number()
            if (mode := await self._book.started(trial, session_key)) is not None:
                self.cancel(mode)
                return
            self._trials[session_key] = trial
            ended: list[Outcome] = []
            try:
                await work.attempts.run(trial, number, ended.append)
            except Exception as error:
                self._killed = self._killed or Failure(FailureCategory.WORKER_LOST, f"the worker was lost: {error}")
                raise
            finally:
                for outcome in ended:
                    self._keep(work, trial, outcome)

    def _keep(self, work: _Work, trial: Planned, outcome: Outcome) -> None:
        """Write an ended attempt down, here and now, and send it to the database meanwhile."""
        if outcome.drop_reason is not None:
            outcome.fail(self._killed or Failure(FailureCategory.WORKER_LOST, "the worker was lost"))
        line = dump_line(
            outcome, run_id=str(work.run_id), incarnation=work.directory.incarnation, rollout_id=trial.number
        )
        work.sink.append(line)
        self._left += 1
        storing = asyncio.create_task(self._store(work, trial, line, outcome.folder))
        self._storing.add(storing)
        storing.add_done_callback(self._stored)

    def _stored(self, storing: asyncio.Task[None]) -> None:
        self._storing.discard(storing)
        if not storing.cancelled() and (error := storing.exception()) is not None:
            self._fault = self._fault or error
            for lane in self._lanes:
                lane.cancel()

    async def _store(self, work: _Work, trial: Planned, line: dict[str, Any], folder: Path | None) -> None:
        log_file = Log.of("") if folder is None else await asyncio.to_thread(read_log, folder / "run.log")
        evidence = await asyncio.to_thread(evidence_of, line, log_file, secrets=work.secrets)
        await self._book.finished(work.run_id, trial, evidence)
        self._left -= 1
        if folder is not None:
            await asyncio.to_thread(discard_folder, folder)
        await asyncio.to_thread(work.attempts.environment.discard, line["session_id"])

    def _tell(self, session_key: str, part: str) -> None:
        telling = asyncio.create_task(self._book.phase(self._trials[session_key], _PHASES.get(part, part)))
        self._background.add(telling)
        telling.add_done_callback(self._background.discard)

    def _kill(self, why: Failure) -> None:
        self._killed = self._killed or why
        for lane in self._lanes:
            lane.cancel()


@dataclass(frozen=True, slots=True)
class _Work:
    """What the attempts of one job share."""

    run_id: UUID
    attempts: Attempts
    directory: RunDirectory
    sink: FileSink
    secrets: tuple[str, ...]
