"""Runs one Session's agent from launch to settled outcome. A failed Session is a record, never an exception."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.environment import agent_launch
from relaxforge.agents.folder import discard_folder, open_folder
from relaxforge.agents.outcome import judge
from relaxforge.core.errors import AgentError
from relaxforge.core.ports import AgentRunner
from relaxforge.core.sessions import AgentExit, AgentLaunch, Failure, FailureCategory
from relaxforge.forest.config import HistoryConfig
from relaxforge.rollout.export import export
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.registry import SessionRegistry
from relaxforge.rollout.session import Session


@dataclass(frozen=True, slots=True)
class Supervisor:
    """``base_url`` is a callable because the gateway may bind a free port after this object is built.

    When the run ``trains``, a training Session exports one Context; otherwise any number.
    """

    runner: AgentRunner
    agents: AgentConfig
    history: HistoryConfig
    registry: SessionRegistry
    sessions_dir: Path
    base_url: Callable[[], str]
    trains: bool = False

    async def run(self, session: Session, stop: asyncio.Event) -> Outcome:
        """Until the agent is gone and its output read; ``stop`` ends it early. Errors: ``StorageError`` only."""
        outcome = Outcome(session)
        try:
            launch = await self._prepare(session)
            outcome.folder = Path(launch.io_dir)
            await self._live(launch, session, outcome, stop)
        except AgentError as error:
            outcome.fail(Failure(error.category, _named(session.session_id, str(error)), error.log_tail))
        finally:
            await session.seal()
            self.registry.remove(session)
        outcome.durations["generation"] = sum(record.generation_s or 0.0 for record in session.records)
        return outcome

    async def tidy(self, outcome: Outcome) -> None:
        """Remove the Session's folder unless ``--keep-session-dirs`` keeps it; once its last word is said."""
        if outcome.folder is not None and not self.agents.keeps_folder(failed=outcome.failure is not None):
            await asyncio.to_thread(discard_folder, outcome.folder)

    async def _prepare(self, session: Session) -> AgentLaunch:
        identity = session.identity
        folder = await asyncio.to_thread(
            open_folder, self.sessions_dir, session.session_id, identity.task.session_input
        )
        return agent_launch(
            self.agents,
            folder,
            identity.credential,
            group_id=identity.group_id,
            mode=identity.mode,
            base_url=self.base_url(),
            parent=os.environ,
        )

    async def _live(self, launch: AgentLaunch, session: Session, outcome: Outcome, stop: asyncio.Event) -> None:
        started = time.monotonic()
        process = await self.runner.launch(launch)
        exited = asyncio.create_task(process.wait())
        try:
            ended_by = await _until_ended(session, exited, stop, started, outcome)
            ended = outcome.exit = await exited if ended_by is None else await process.kill()
        finally:
            exited.cancel()
        await session.seal()
        outcome.durations["active"] = session.clock.spent_s
        if ended_by is FailureCategory.CANCELLED:
            return
        if session.fault is not None:
            raise AgentError(session.fault.message, session.fault.category)
        outcome.output = await asyncio.to_thread(
            judge, launch, ended, self.agents, requests=len(session.records), ended_by=ended_by
        )
        one = self.trains and session.identity.mode == "train"
        outcome.contexts = export(session.forest, outcome.output, self.history, one=one)


async def _until_ended(
    session: Session, exited: asyncio.Task[AgentExit], stop: asyncio.Event, started: float, outcome: Outcome
) -> FailureCategory | None:
    """Wait for the agent's own exit (``None``) or for the reason to end it; ``CANCELLED`` means ``stop`` was set."""
    watches = {
        asyncio.create_task(stop.wait()): FailureCategory.CANCELLED,
        asyncio.create_task(_never_started(session)): FailureCategory.STARTUP_TIMEOUT,
        asyncio.create_task(session.clock.expired()): FailureCategory.AGENT_TIMEOUT,
    }
    first = asyncio.create_task(session.first_request.wait())
    first.add_done_callback(lambda _: outcome.durations.setdefault("prepare", time.monotonic() - started))
    leased = asyncio.create_task(session.lease.wait())
    leased.add_done_callback(
        lambda _: outcome.durations.setdefault("wait", time.monotonic() - started - outcome.durations.get("prepare", 0))
    )
    try:
        done, _ = await asyncio.wait({exited, *watches}, return_when=asyncio.FIRST_COMPLETED)
        return None if exited in done else next(reason for task, reason in watches.items() if task in done)
    finally:
        for task in (*watches, first, leased):
            task.cancel()


async def _never_started(session: Session) -> None:
    """Return when the start-up budget is spent without a first request; otherwise never."""
    try:
        await asyncio.wait_for(session.first_request.wait(), session.limits.startup_s)
    except TimeoutError:
        return
    await asyncio.Event().wait()


def _named(session_id: str, message: str) -> str:
    return message if session_id in message else f"Session {session_id}: {message}"
