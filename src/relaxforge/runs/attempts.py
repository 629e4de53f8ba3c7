"""The runtime of one evaluation job: the same Prepare, Runtime and Reward as in training, one Session per attempt."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.runner import SpawnedAgents
from relaxforge.agents.sandbox import Sandbox
from relaxforge.core.ids import group_id, session_id
from relaxforge.core.ports import AgentProcess, AgentRunner
from relaxforge.core.sessions import AgentLaunch, Task
from relaxforge.credit.config import CreditConfig
from relaxforge.forest.config import HistoryConfig
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.server import Gateway
from relaxforge.observe.progress import StepProgress
from relaxforge.rollout.config import RolloutConfig
from relaxforge.rollout.factory import SessionFactory
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.registry import SessionRegistry
from relaxforge.rollout.scheduler import Plan
from relaxforge.rollout.scoring import Scorer
from relaxforge.rollout.step import Rooms, Step, StepOrder
from relaxforge.rollout.supervise import Supervisor
from relaxforge.rollout.trial import Environment, agents_of
from relaxforge.runs.assignment import Assignment
from relaxforge.runs.directory import RunDirectory
from relaxforge.runs.engines import Model
from relaxforge.store.trials import Planned

LONGEST_SOCKET = 100
"""Bytes in the name of a socket; the system takes few more."""

Tell = Callable[[str, str], None]
"""Hears the id of a Session and what it does now: ``world``, ``agent`` or ``evaluator``."""


class Attempts:
    """Runs attempts, each as a step of one Group of one Session."""

    def __init__(self, rooms: Rooms, environment: Environment, tasks: tuple[Task, ...], incarnation: int) -> None:
        self.environment = environment
        self._rooms = rooms
        self._tasks = tasks
        self._incarnation = incarnation
        self._numbers = itertools.count()

    def number(self) -> tuple[int, str]:
        """A number for the next attempt, and the id that its Session will have."""
        number = next(self._numbers)
        return number, session_id(group_id("eval", number), 0, self._incarnation)

    async def run(self, trial: Planned, number: int, keep: Callable[[Outcome], None]) -> None:
        """Until everything of the attempt has ended; ``keep`` hears what became of it, also when it is cancelled."""
        task = replace(self._tasks[trial.task_index], seed=trial.seed, world_seed=trial.world_seed)
        order = StepOrder(
            rollout_id=0,
            mode="eval",
            plan=Plan(quota=1, started=1, capacity=1, replace_lost=False),
            group_size=1,
            take=lambda: task,
            keep=keep,
        )
        await Step(order, number, self._rooms).run()


@asynccontextmanager
async def open_attempts(
    given: Assignment, model: Model, operator: AgentConfig, directory: RunDirectory, tell: Tell
) -> AsyncIterator[Attempts]:
    """The rooms of one job, started. Everything that it starts is ended again; ``tell`` hears what Sessions do."""
    async with AsyncExitStack() as stack:
        agents = agents_for(given, operator)
        spawner = SpawnedAgents(agents, directory.sessions)
        await spawner.start(str(directory.logs / "spawner.log"))
        stack.push_async_callback(spawner.close)
        registry, history = SessionRegistry(), HistoryConfig()
        path = directory.path.resolve() / "models"
        if len(os.fsencode(path)) > LONGEST_SOCKET:
            path = Path(stack.enter_context(TemporaryDirectory(prefix="relaxforge-"))) / "models"
        gateway = Gateway(registry, GatewayConfig(), (model.name,), dict, socket_path=path)
        await gateway.start()
        stack.push_async_callback(gateway.close)
        sandbox = Sandbox(agents, hidden=(str(directory.path.parent.parent.resolve()),), socket=str(path))
        base_url = gateway.base_url if sandbox.origin is None else gateway.url_at(sandbox.origin)
        runner = _Announced(spawner, tell)
        needed = {name: given.secrets[name] for name in given.bundle.manifest.secrets.required}
        environment = Environment(given.bundle, runner, operator, directory.sessions, sandbox, needed)
        factory = SessionFactory(
            sampling_of(given), agents, history, model.engine, model.renderer, registry, directory.incarnation,
            hosted=model.hosted,
        )  # fmt: skip
        supervisor = Supervisor(
            runner, agents, history, registry, directory.sessions, lambda: base_url, sandbox=sandbox,
            environment=environment,
        )  # fmt: skip
        scorer = Scorer(CreditConfig(), environment=environment)
        rooms = Rooms(factory, supervisor, scorer, _NoProgress(), vital=(model.engine.lost,))
        yield Attempts(rooms, environment, given.tasks, directory.incarnation)


class _Announced:
    """An ``AgentRunner`` that says what a Session does next: world, agent and evaluator all start here."""

    def __init__(self, inner: AgentRunner, tell: Tell) -> None:
        self._inner = inner
        self._tell = tell

    async def launch(self, launch: AgentLaunch) -> AgentProcess:
        session_id, _, part = launch.session_id.partition(".")
        self._tell(session_id, part.partition("-")[0] or "agent")
        return await self._inner.launch(launch)


class _NoProgress(StepProgress):
    """Attempts are watched in the workspace, not on this console."""

    def begin(self, title: str, sessions: int) -> None: ...

    def prepared(self, count: int = 1) -> None: ...

    def scored(self, count: int = 1) -> None: ...

    def phase(self, name: str) -> None: ...

    def end(self) -> None: ...


def sampling_of(given: Assignment) -> RolloutConfig:
    """How answers are sampled, and how long they may be."""
    sampling, budget = given.choice.sampling, given.budget
    return RolloutConfig(
        rollout_temperature=sampling.temperature,
        rollout_top_p=sampling.top_p,
        rollout_top_k=sampling.top_k,
        rollout_max_response_len=budget.max_response_tokens,
        rollout_max_context_len=budget.max_context_tokens,
    )


def agents_for(given: Assignment, operator: AgentConfig) -> AgentConfig:
    """The agent of the bundle. The folders of its Sessions are kept until the evidence is stored."""
    agents = agents_of(given.bundle.manifest, operator)
    return replace(agents, agent_timeout=given.budget.timeout_s or agents.agent_timeout, keep_session_dirs="all")
