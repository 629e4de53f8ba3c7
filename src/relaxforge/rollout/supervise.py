"""Runs one Session's agent from launch to settled outcome. A failed Session is a record, never an exception."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.environment import agent_launch
from relaxforge.agents.folder import discard_folder, open_folder
from relaxforge.agents.outcome import judge
from relaxforge.agents.sandbox import Sandbox
from relaxforge.agents.steps import read_steps
from relaxforge.core.errors import AgentError
from relaxforge.core.ports import AgentRunner
from relaxforge.core.sessions import AgentExit, AgentLaunch, AgentOutput, Failure, FailureCategory
from relaxforge.forest.config import HistoryConfig
from relaxforge.forest.select import Context
from relaxforge.rollout.export import export
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.registry import SessionRegistry
from relaxforge.rollout.session import Session
from relaxforge.rollout.trial import Environment

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Supervisor:
    """``base_url`` is a callable because the gateway may bind a free port after this object is built.

    When the run ``trains``, a training Session exports one Context; otherwise any number. ``sandbox`` is around every
    agent; an ``environment`` gives each its own workspace and world.
    """

    runner: AgentRunner
    agents: AgentConfig
    history: HistoryConfig
    registry: SessionRegistry
    sessions_dir: Path
    base_url: Callable[[], str]
    trains: bool = False
    sandbox: Sandbox | None = None
    environment: Environment | None = None

    async def run(self, session: Session, stop: asyncio.Event) -> Outcome:
        """Until the agent is gone and its output read; ``stop`` ends it early. Errors: ``StorageError`` only."""
        outcome = Outcome(session)
        try:
            launch = await self._prepare(session, outcome, stop)
            if launch is not None:
                await self._live(launch, session, outcome, stop)
        except AgentError as error:
            outcome.fail(Failure(error.category, _named(session.session_id, str(error)), error.log_tail))
        finally:
            await session.seal()
            self.registry.remove(session)
        outcome.durations["generation"] = sum(record.generation_s or 0.0 for record in session.records)
        return outcome

    async def tidy(self, outcome: Outcome) -> None:
        """Remove the Session's folders unless ``--keep-session-dirs`` keeps them; once its last word is said."""
        if outcome.folder is None or self.agents.keeps_folder(failed=outcome.failure is not None):
            return
        await asyncio.to_thread(discard_folder, outcome.folder)
        if self.environment is not None:
            await asyncio.to_thread(self.environment.discard, outcome.session.session_id)

    async def _prepare(self, session: Session, outcome: Outcome, stop: asyncio.Event) -> AgentLaunch | None:
        """The launch of the agent; ``None`` when ``stop`` was set before it could start."""
        identity = session.identity
        outcome.folder = await asyncio.to_thread(
            open_folder, self.sessions_dir, session.session_id, identity.task.session_input
        )
        launch = agent_launch(
            self.agents,
            outcome.folder,
            identity.credential,
            group_id=identity.group_id,
            mode=identity.mode,
            base_url=self.base_url(),
            parent=os.environ,
        )
        if self.environment is None:
            confined = self.sandbox and self.sandbox.around(
                launch, read=(launch.cwd,), write=(launch.io_dir,), models=True
            )
            return confined or launch
        started = time.monotonic()
        try:
            return await _unless(stop, self.environment.prepare(session, launch))
        finally:
            outcome.durations["world"] = time.monotonic() - started

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
        outcome.steps = await asyncio.to_thread(read_steps, Path(launch.io_dir))
        if ended_by is FailureCategory.CANCELLED:
            return
        if session.fault is not None:
            raise AgentError(session.fault.message, session.fault.category)
        outcome.output = await asyncio.to_thread(
            judge, launch, ended, self.agents, requests=len(session.records), ended_by=ended_by
        )
        outcome.contexts = self._export(session, outcome.output)

    def _export(self, session: Session, output: AgentOutput) -> tuple[Context, ...]:
        mode = session.identity.mode
        try:
            return export(session.forest, output, self.history, one=self.trains and mode == "train")
        except AgentError:
            judged = self.environment is not None and self.environment.evaluator is not None
            if judged and mode == "eval" and output.records is None:
                return ()  # Nobody asked the agent to say which conversation counts: the evaluator looks at deeds.
            raise


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What ``work`` returns, or ``None`` when ``stop`` is set before: then it is cancelled and has ended."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return await working
        working.cancel()
        await asyncio.wait({working})
        return None
    finally:
        stopping.cancel()


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
