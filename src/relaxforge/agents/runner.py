"""Main's side of the spawner: the ``AgentRunner`` port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.ending import GIVE_UP_S
from relaxforge.agents.sweep import end_leftovers
from relaxforge.core.errors import AgentError
from relaxforge.core.sessions import AgentExit, AgentLaunch, FailureCategory
from relaxforge.ipc.parent import Child, ChildDied, ChildFailed
from relaxforge.observe.log import get_logger

log = get_logger()

SLACK_S = 5.0
"""Seconds that a busy machine may take on top of what the ending of processes takes at most."""


class SpawnedAgent:
    """One running agent (an ``AgentProcess``)."""

    def __init__(
        self, spawner: Child, launch: AgentLaunch, lost: Callable[[Child], Awaitable[None]], patience_s: float
    ) -> None:
        self.session_id = launch.session_id
        self._patience_s = patience_s
        self._spawner = spawner
        self._lost = lost
        self._pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._exit = asyncio.create_task(self._run(launch), name=f"agent-{launch.session_id}")
        # Who waits gets the error; when nobody does, it is in no one's way.
        self._exit.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def started(self) -> int:
        """The leader's process id, once it runs. Errors: ``AgentError`` when it cannot."""
        either: set[asyncio.Future[Any]] = {self._pid, self._exit}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._pid.done():
            await self._exit
        return await self._pid

    async def wait(self) -> AgentExit:
        """Until the leader has exited and nothing it started is left. Errors: ``AgentError`` ``worker_lost``."""
        return await asyncio.shield(self._exit)

    async def kill(self) -> AgentExit:
        """SIGTERM to everything the agent started, SIGKILL after the grace period, then as ``wait``.

        A spawner that does not get that done in its time is stuck, and is ended itself.
        """
        with suppress(ChildDied):  # wait says so
            await self._spawner.notify("kill", self.session_id)
        try:
            return await asyncio.wait_for(self.wait(), self._patience_s)
        except TimeoutError:
            log.warning("spawner_stuck", pid=self._spawner.pid, session=self.session_id)
            self._spawner.kill()
            return await self.wait()

    async def _run(self, launch: AgentLaunch) -> AgentExit:
        try:
            report = await self._spawner.call("run", launch, on_event=self._pid.set_result)
        except ChildFailed as error:
            raise AgentError(
                f"Session {self.session_id}: the agent cannot be started in {launch.cwd}: {error}",
                FailureCategory.ENV_SETUP,
            ) from error
        except ChildDied as error:
            await self._lost(self._spawner)
            raise AgentError(
                f"Session {self.session_id}: {error} while the agent ran; everything it started was ended",
                FailureCategory.WORKER_LOST,
            ) from error
        return AgentExit(self.session_id, **report)


class SpawnedAgents:
    """Starts agents through one spawner process, and replaces that process should it be killed.

    ``sessions_dir`` holds the Session folders of this run and of no other.
    """

    def __init__(self, config: AgentConfig, sessions_dir: Path) -> None:
        self._config = config
        self._sessions_dir = sessions_dir
        self._log_path: str | None = None
        self._spawner: Child | None = None
        self._changing = asyncio.Lock()

    async def start(self, log_path: str | None = None) -> None:
        """End what a dead earlier run left behind, then start the spawner; its own output goes to ``log_path``."""
        self._log_path = log_path
        await self._sweep()
        await self._ready()

    async def launch(self, launch: AgentLaunch) -> SpawnedAgent:
        """Start one agent. Errors: ``AgentError`` with ``env_setup`` or ``worker_lost``."""
        agent = SpawnedAgent(
            await self._ready(), launch, self._replace, self._config.agent_kill_grace + GIVE_UP_S + SLACK_S
        )
        try:
            await agent.started()
        except asyncio.CancelledError:
            await agent.kill()
            raise
        return agent

    async def close(self) -> None:
        """End every agent, so that each ``wait`` returns, then the spawner."""
        async with self._changing:
            if self._spawner is not None:
                with suppress(ChildDied):
                    await self._spawner.call("stop")
                await self._spawner.close()
                self._spawner = None
        await self._sweep()

    async def _ready(self) -> Child:
        async with self._changing:
            if self._spawner is None:
                limits = (str(self._config.agent_kill_grace), str(self._config.log_limit_bytes))
                self._spawner = await Child.start(
                    "spawner", "relaxforge.agents.spawner", args=limits, log_path=self._log_path
                )
            return self._spawner

    async def _replace(self, dead: Child) -> None:
        """End the agents of a spawner that died; the first of its Sessions to notice does it for all."""
        async with self._changing:
            if self._spawner is dead:
                log.warning("spawner_lost", pid=dead.pid)
                await dead.close()
                await self._sweep()
                self._spawner = None

    async def _sweep(self) -> None:
        ended = await asyncio.to_thread(end_leftovers, self._sessions_dir, self._config.agent_kill_grace)
        if ended:
            log.warning("leftover_agents_ended", processes=ended, sessions_dir=str(self._sessions_dir))
