"""Agents that are coroutines of the test: the port of the agent runner without processes, for tests of the conductor.

Everything else is real: Sessions, forest, renderer, scripted engine, session folders, Reward and scheduler.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rollout_parts import HeardEngine, ask, user

from relaxforge.agents.config import AgentConfig
from relaxforge.core.errors import RequestError
from relaxforge.core.sessions import AgentExit, AgentLaunch, Task
from relaxforge.credit.config import CreditConfig
from relaxforge.forest.config import HistoryConfig
from relaxforge.observe.progress import LineProgress
from relaxforge.render.renderer import Renderer
from relaxforge.rollout.conductor import Conductor
from relaxforge.rollout.config import RolloutConfig
from relaxforge.rollout.factory import SessionFactory
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.record import dump_line
from relaxforge.rollout.registry import SessionRegistry
from relaxforge.rollout.scheduler import Plan
from relaxforge.rollout.scoring import Scorer
from relaxforge.rollout.session import Session
from relaxforge.rollout.step import Rooms, ScoredGroup, StepOrder
from relaxforge.rollout.supervise import Supervisor

Agent = Callable[[Session, AgentLaunch], Awaitable[int | None]]
"""Works on a Session and returns its exit code (``None`` is 0)."""


class InsideProcess:
    def __init__(self, launch: AgentLaunch, work: asyncio.Task[int | None]) -> None:
        self._launch = launch
        self._work = work

    async def wait(self) -> AgentExit:
        await asyncio.wait([self._work])
        if self._work.cancelled():
            return AgentExit(self._launch.session_id, None, 15, 0.0)
        error = self._work.exception()
        if error is not None and not isinstance(error, RequestError):
            raise error  # A mistake in the test, not of the agent.
        code = 1 if error else self._work.result() or 0
        return AgentExit(self._launch.session_id, code, None, 0.0)

    async def kill(self) -> AgentExit:
        self._work.cancel()
        return await self.wait()


class InsideRunner:
    def __init__(self, registry: SessionRegistry, agent: Agent) -> None:
        self._registry = registry
        self._agent = agent
        self.running: set[asyncio.Task[int | None]] = set()

    async def launch(self, launch: AgentLaunch) -> InsideProcess:
        session = self._registry.open(launch.env["RELAX_SESSION_ID"])
        work = asyncio.ensure_future(self._agent(session, launch))
        self.running.add(work)
        work.add_done_callback(self.running.discard)
        return InsideProcess(launch, work)


class Stage:
    """A conductor with its rooms, and everything that left them."""

    def __init__(
        self, folder: Path, renderer: Renderer, engine: HeardEngine, agent: Agent, *,
        credit: CreditConfig | None = None, filter_path: str | None = None, startup_s: float = 60.0,
        incarnation: int = 0, vital: Any = (),
    ) -> None:  # fmt: skip
        agents = AgentConfig(agent_command="inside", agent_startup_timeout=startup_s)
        registry = SessionRegistry()
        self.engine = engine
        self.runner = InsideRunner(registry, agent)
        self.registry = registry
        self.folder = folder
        factory = SessionFactory(RolloutConfig(), agents, HistoryConfig(), engine, renderer, registry, incarnation)
        supervisor = Supervisor(
            self.runner, agents, HistoryConfig(), registry, folder, base_url=lambda: "http://127.0.0.1:1/agentic_api"
        )
        scorer = Scorer(credit or CreditConfig(), filter_path)
        self.conductor = Conductor(Rooms(factory, supervisor, scorer, LineProgress(), check=True, vital=tuple(vital)))
        self.kept: list[Outcome] = []
        self.lines: list[dict[str, Any]] = []
        self.transferred: list[ScoredGroup] = []
        self.taken: list[Task] = []
        self.returned: list[Task] = []

    async def run(self, plan: Plan, size: int, *, mode: str = "train", transfer: Any = None, keep: Any = None) -> Any:
        order = StepOrder(
            rollout_id=0,
            mode=mode,
            plan=plan,
            group_size=size,
            take=self.take,
            give_back=self.returned.append,
            keep=keep or self.keep,
            transfer=transfer or self.transfer,
        )
        return await self.conductor.run(order)

    def take(self) -> Task:
        self.taken.append(Task(len(self.taken), None, {"n": len(self.taken)}))
        return self.taken[-1]

    def keep(self, outcome: Outcome) -> None:
        self.kept.append(outcome)
        self.lines.append(dump_line(outcome, run_id="run", incarnation=0, rollout_id=0))

    async def transfer(self, group: ScoredGroup) -> None:
        self.transferred.append(group)

    def statuses(self) -> Counter[str]:
        return Counter(line["status"] for line in self.lines)

    def check_end(self) -> None:
        """What holds after every step, good or bad."""
        assert not self.runner.running, "an agent outlived its step"
        assert not self.registry.live, "a Session can still be talked to"
        ids = [line["session_id"] for line in self.lines]
        assert len(ids) == len(set(ids)), "a Session was written down twice"
        for line in self.lines:
            tokens = line["tokens"]
            assert tokens["sampled"] == tokens["trained"] + sum(tokens["masked"].values()) + tokens["undelivered"]
            assert bool(tokens["trained"]) <= (line["status"] in ("completed", "truncated"))


def leave(launch: AgentLaunch, output: Any) -> None:
    launch.output_path.write_text(output if isinstance(output, str) else json.dumps(output), encoding="utf-8")


async def good(session: Session, launch: AgentLaunch) -> None:
    """Asks twice and earns 1."""
    first = await ask(session, user("q"))
    await ask(session, user("q"), first.message, user("r"))
    leave(launch, {"reward": 1.0})


async def crash(session: Session, launch: AgentLaunch) -> int:
    """Asks once and exits with status 3."""
    await ask(session, user("q"))
    return 3


async def hang(session: Session, launch: AgentLaunch) -> None:
    """Asks once and never ends by itself."""
    await ask(session, user("q"))
    await asyncio.Event().wait()


async def silent(session: Session, launch: AgentLaunch) -> None:
    """Ends without a request."""
