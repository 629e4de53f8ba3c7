"""The runtime of one evaluation job: the same Prepare, Runtime and Reward as in training, one Session per attempt."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.runner import SpawnedAgents
from relaxforge.core.ids import group_id, session_id
from relaxforge.core.sessions import Task
from relaxforge.credit.config import CreditConfig
from relaxforge.engine.choice import Budget, ModelChoice
from relaxforge.environments.bundle import Bundle
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
from relaxforge.rollout.step import Rooms, ScoredGroup, Step, StepOrder
from relaxforge.rollout.supervise import Supervisor
from relaxforge.runs.directory import RunDirectory
from relaxforge.runs.engines import Model
from relaxforge.store.trials import Planned
from relaxforge.tasks.rows import RowShape
from relaxforge.tasks.rows import task as read_task


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a job is to try, and with what."""

    bundle: Bundle
    tasks: tuple[Task, ...]
    choice: ModelChoice
    budget: Budget
    secrets: Mapping[str, str]


class Attempts:
    """Runs attempts, each as a step of one Group of one Session."""

    def __init__(self, rooms: Rooms, tasks: tuple[Task, ...], incarnation: int) -> None:
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
        task = replace(self._tasks[trial.task_index])
        order = StepOrder(
            rollout_id=0,
            mode="eval",
            plan=Plan(quota=1, started=1, capacity=1, replace_lost=False),
            group_size=1,
            take=lambda: task,
            give_back=_ignore,
            keep=keep,
            transfer=_forget,
        )
        await Step(order, number, self._rooms).run()


@asynccontextmanager
async def open_attempts(
    given: Assignment, model: Model, agents: AgentConfig, directory: RunDirectory, progress: StepProgress
) -> AsyncIterator[Attempts]:
    """The rooms of one job, started. Everything that it starts is ended again."""
    async with AsyncExitStack() as stack:
        agents = agents_for(given, agents, directory)
        runner = SpawnedAgents(agents, directory.sessions)
        await runner.start(str(directory.logs / "spawner.log"))
        stack.push_async_callback(runner.close)
        registry, history = SessionRegistry(), HistoryConfig()
        gateway = Gateway(registry, GatewayConfig(), (model.name,), dict)
        await gateway.start()
        stack.push_async_callback(gateway.close)
        factory = SessionFactory(
            sampling_of(given), agents, history, model.engine, model.renderer, registry, directory.incarnation,
            hosted=model.hosted,
        )  # fmt: skip
        supervisor = Supervisor(runner, agents, history, registry, directory.sessions, lambda: gateway.base_url)
        rooms = Rooms(
            factory, supervisor, Scorer(CreditConfig()), progress, vital=(model.engine.lost,), clock=time.monotonic
        )
        yield Attempts(rooms, given.tasks, directory.incarnation)


def tasks_of(bundle: Bundle) -> tuple[Task, ...]:
    """Every task of the bundle, in order. Errors: ``TaskError``."""
    part = bundle.manifest.tasks
    shape = RowShape(part.input_key, part.metadata_key, part.label_key or None)
    rows = list(bundle.manifest.inline_tasks)
    if not rows:
        lines = (bundle.content(part.path) or b"").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
    return tuple(read_task(row, index, f"task {index}", shape) for index, row in enumerate(rows))


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


def agents_for(given: Assignment, agents: AgentConfig, directory: RunDirectory) -> AgentConfig:
    """The agent of the bundle, with the folders of its Sessions kept until the evidence is stored."""
    agent = given.bundle.manifest.agent
    return replace(
        agents,
        agent_command=agent.command,
        agent_cwd=str(directory.path / "bundle" / agent.cwd),
        agent_env=(*agent.env, *(f"{name}={given.secrets[name]}" for name in given.bundle.manifest.secrets.required)),
        agent_timeout=given.budget.timeout_s or agent.timeout_s,
        agent_startup_timeout=agent.startup_timeout_s,
        keep_session_dirs="all",
    )


def _ignore(_: Task) -> None:
    """An attempt that is cancelled is not tried again here."""


async def _forget(_: ScoredGroup) -> None:
    """Nothing trains on an evaluation."""
