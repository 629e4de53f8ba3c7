"""Whole Trials: an environment on disk, real processes, a real gateway, the scripted engine, one Group per attempt."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rollout_parts import HeardEngine, says

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.runner import SpawnedAgents
from relaxforge.agents.sandbox import Sandbox
from relaxforge.core.sessions import Task
from relaxforge.credit.config import CreditConfig
from relaxforge.environments.bundle import read_bundle
from relaxforge.forest.config import HistoryConfig
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.server import Gateway
from relaxforge.observe.progress import open_progress
from relaxforge.render.renderer import Renderer
from relaxforge.rollout.conductor import Conductor
from relaxforge.rollout.config import RolloutConfig
from relaxforge.rollout.factory import SessionFactory
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.record import dump_line
from relaxforge.rollout.registry import SessionRegistry
from relaxforge.rollout.scheduler import Plan
from relaxforge.rollout.scoring import Scorer
from relaxforge.rollout.step import Rooms, ScoredGroup, StepOrder
from relaxforge.rollout.supervise import Supervisor
from relaxforge.rollout.trial import Environment, agents_of
from relaxforge.rollout.trial_tasks import tasks_of

PATIENCE_S = 60

ASK = """
import http.client, json, os
from urllib.parse import urlsplit
def ask(text):
    base = urlsplit(os.environ["RELAX_BASE_URL"])
    connection = http.client.HTTPConnection(base.netloc, timeout=30)
    connection.request("POST", base.path + "/v1/chat/completions",
        json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}),
        {"Authorization": "Bearer " + os.environ["RELAX_SESSION_ID"], "Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())["choices"][0]["message"]["content"]
"""

MANIFEST = """
name = "test"
[agent]
command = "exec python -E agent.py"
timeout_s = 20
[[task]]
input = "do it"
metadata = {{ n = 7 }}
label = "secret answer"
[tasks]
label_key = "label"
{more}
"""

EVALUATOR = """
[evaluator]
command = "exec python -E evaluator/check.py"
timeout_s = 20
stages = ["stage_one"]
"""

WRITE = """
import json, os, sys
def write(**verdict):
    with open(os.environ["RELAX_EVALUATION_OUTPUT"], "w") as file:
        json.dump(verdict, file)
def given(name):
    with open(os.environ[f"RELAX_{name}_JSON"]) as file:
        return json.load(file)
"""


def environment(folder: Path, agent: str = "ask('hi')", check: str | None = "write(reward=1)", more: str = "",
                **files: str) -> Path:  # fmt: skip
    """An environment whose agent has ``ask`` and whose evaluator has ``write`` and ``given``."""
    content = {"agent.py": ASK + agent, **files}
    if check is not None:
        content["evaluator/check.py"] = WRITE + check
        more += EVALUATOR
    content["environment.toml"] = MANIFEST.format(more=more)
    for name, text in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def attempts(
    renderer: Renderer,
    folder: Path,
    tmp_path: Path,
    *,
    count: int = 1,
    at_once: int = 2,
    secrets: Mapping[str, str] | None = None,
    seeds: Mapping[str, int] | None = None,
    **settings: Any,
) -> list[dict[str, Any]]:
    """The dump lines of ``count`` Trials, in order. ``settings`` are the operator's for agents."""

    async def go() -> list[dict[str, Any]]:
        async with AsyncExitStack() as stack:
            return await conduct(
                stack, renderer, folder, tmp_path, count, at_once, secrets or {}, seeds or {}, settings
            )

    return asyncio.run(asyncio.wait_for(go(), PATIENCE_S))


async def conduct(
    stack: AsyncExitStack, renderer: Renderer, folder: Path, tmp_path: Path, count: int, at_once: int,
    secrets: Mapping[str, str], seeds: Mapping[str, int], settings: dict[str, Any],
) -> list[dict[str, Any]]:  # fmt: skip
    bundle = read_bundle(folder)
    config = AgentConfig(**{"agent_kill_grace": 0.3, "keep_session_dirs": "none", **settings})
    agents, sessions_dir = agents_of(bundle.manifest, config), tmp_path / "run" / "sessions"
    runner = SpawnedAgents(config, sessions_dir)
    await runner.start(str(tmp_path / "spawner.log"))
    stack.push_async_callback(runner.close)
    place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaxforge-test-")))
    sandbox = Sandbox(config, (str(tmp_path / "run"),), str(place / "api.sock"))
    surroundings = Environment(bundle, runner, config, sessions_dir, sandbox, secrets)
    engine, registry = HeardEngine(renderer, says("fine", cycle=True)), SessionRegistry()
    gateway = Gateway(registry, GatewayConfig(), ("model",), dict, place / "api.sock")
    await gateway.start()
    stack.push_async_callback(gateway.close)
    history = HistoryConfig()
    conductor = Conductor(
        Rooms(
            SessionFactory(RolloutConfig(), agents, history, engine, renderer, registry),
            Supervisor(
                runner, agents, history, registry, sessions_dir,
                lambda: gateway.url_at(sandbox.origin) if sandbox.origin else gateway.base_url,
                sandbox=sandbox, environment=surroundings,
            ),
            Scorer(CreditConfig(), environment=surroundings),
            open_progress(),
            check=True,
        )
    )  # fmt: skip
    lines: list[dict[str, Any]] = []
    tasks = _tasks(tasks_of(bundle)[0], seeds)

    def keep(outcome: Outcome) -> None:
        lines.append(dump_line(outcome, run_id="run", incarnation=0, rollout_id=0))

    async def transfer(_: ScoredGroup) -> None:
        """Nothing trains on a Trial."""

    await conductor.run(
        StepOrder(
            rollout_id=0, mode="eval", plan=Plan(count, count, at_once, replace_lost=False), group_size=1,
            take=lambda: next(tasks), give_back=lambda _: None, keep=keep, transfer=transfer,
        )
    )  # fmt: skip
    return sorted(lines, key=lambda line: line["session_id"])


def _tasks(task: Task, seeds: Mapping[str, int]) -> Iterator[Task]:
    while True:
        yield dataclasses.replace(task, **seeds)
