"""A workspace for the worker's tests: real database, real bundles, real agents, a scripted engine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from relaxforge.agents.config import AgentConfig
from relaxforge.engine.config import EngineConfig
from relaxforge.environments.bundle import pack, read_bundle
from relaxforge.runs.worker import Worker
from relaxforge.runs.worker_config import WorkerConfig
from relaxforge.store import artifacts, environments, evaluations, trials
from relaxforge.store.database import Database, Scope
from relaxforge.store.vault import Vault

PATIENCE_S = 60

TASKS = '{"input": "one plus two", "label": 3}\n'

HEAD = """
import json, os, sys, time, urllib.request

def say(*messages, **rest):
    body = {"model": "m", "messages": list(messages), **rest}
    request = urllib.request.Request(
        os.environ["RELAX_BASE_URL"] + "/v1/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["RELAX_SESSION_ID"]})
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]

def user(text):
    return {"role": "user", "content": text}

def output(reward, **metadata):
    with open(os.environ["RELAX_OUTPUT_JSON"], "w") as file:
        json.dump({"reward": reward, "metadata": metadata}, file)
"""

GOOD = HEAD + "say(user('one plus two'))\noutput(1.0)\n"


class Workspace:
    """One organization with environments made of ``files``; everything that a person and a worker would do with it."""

    def __init__(
        self, run: Callable[[Coroutine[Any, Any, Any]], Any], app: Database, urls: dict[str, str], scope: Scope,
        folder: Path,
    ) -> None:  # fmt: skip
        self.run_async, self.app, self.urls, self.scope, self.folder = run, app, urls, scope, folder

    def write(self, step: Callable[..., Any], *args: Any, **values: Any) -> Any:
        async def transaction() -> Any:
            async with self.app.scope(self.scope) as tx:
                return await step(tx, *args, **values)

        return self.run_async(transaction())

    def publish(self, agent: str = GOOD, manifest: str = "", **files: str) -> tuple[Any, Any]:
        """The environment and version ids of a bundle with this ``agent.py``; ``a__b`` in a name is ``a/b``."""
        source = self.folder / f"bundle-{uuid4().hex[:6]}"
        source.mkdir()
        head = (
            f'name = "env"\n[agent]\nname = "counter"\nversion = "3"\ncommand = "{sys.executable} -S -E agent.py"\n'
            '[tasks]\npath = "tasks.jsonl"\n'
        )
        parts = {"environment.toml": head + manifest, "agent.py": agent, "tasks.jsonl": TASKS}
        parts |= {name.replace("__", "/").replace("_dot_", "."): text for name, text in files.items()}
        for name, text in parts.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(text)
        bundle = read_bundle(source)
        environment = self.write(environments.create_environment, name=f"env-{uuid4()}")
        published = self.write(
            environments.publish, environment["id"], manifest=asdict(bundle.manifest),
            files=[file.listed for file in bundle.files], digest=bundle.digest, package=pack(bundle),
        )  # fmt: skip
        return environment["id"], published.version_id

    def start(self, published: tuple[Any, Any], **configuration: Any) -> Any:
        """The id of a run of the version that is queued."""
        given = {
            "name": f"c-{uuid4()}", "attempt_count": 2, "model": {"engine": "scripted"}, "agent_name": "counter",
            "agent_version": "3", **configuration,
        }  # fmt: skip
        made = self.write(evaluations.create_configuration, environment_id=published[0], **given)
        started = self.write(
            evaluations.start_run, environment_version_id=published[1], evaluator_configuration_id=made["id"]
        )
        return started.evaluation_run_id

    def run(self, run_id: Any) -> dict[str, Any]:
        return self.write(evaluations.get_run, run_id)

    def attempts(self, run_id: Any) -> list[dict[str, Any]]:
        """Whole rows, by Task, attempt and retry."""
        rows = self.write(trials.attempts, run_id)
        return [self.write(trials.get_trial, row["id"]) for row in rows]

    def artifact(self, artifact_id: Any) -> bytes:
        return self.write(artifacts.get, artifact_id).body

    def admin(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.urls["admin"], autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def worker(self, agents: AgentConfig | None = None, vault: Vault | None = None, **config: Any) -> Worker:
        given = {"work_dir": str(self.folder / "work"), "poll": 0.1, **config}
        agents = agents or AgentConfig(agent_command="true", agent_kill_grace=0.5)
        return Worker(
            self.urls["worker"], WorkerConfig(**given), agents, EngineConfig(),
            organizations=[self.scope.organization_id], vault=vault,
        )  # fmt: skip

    def work(self, *run_ids: Any, worker: Worker | None = None, meanwhile: Any = None) -> None:
        """Let a worker of this process run until the runs have ended; ``meanwhile(worker)`` goes on beside it."""
        worker = worker or self.worker()

        async def until_ended() -> None:
            working = asyncio.create_task(worker.run())
            if meanwhile is not None:
                await meanwhile(worker)
            while not working.done() and not await self._ended(run_ids):  # noqa: ASYNC110 - a database has no event
                await asyncio.sleep(0.05)
            if not working.done():
                worker.stop()
            await working

        self.run_async(asyncio.wait_for(until_ended(), PATIENCE_S))

    async def _ended(self, run_ids: tuple[Any, ...]) -> bool:
        async with self.app.scope(self.scope) as tx:
            rows = [await evaluations.get_run(tx, run_id) for run_id in run_ids]
        return all(row["ended_at"] is not None for row in rows)

    async def until(self, run_id: Any, holds: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Until the attempts of a run look as they should."""
        while True:
            async with self.app.scope(self.scope) as tx:
                if holds(await trials.attempts(tx, run_id)):
                    return
            await asyncio.sleep(0.05)

    @contextmanager
    def process(self, *flags: str, env: dict[str, str] | None = None):
        """``relaxforge worker`` as a process; killed at the end if it still runs."""
        url_file = self.folder / f"url-{uuid4().hex[:6]}"
        url_file.write_text(self.urls["worker"])
        url_file.chmod(0o600)
        given = env or {name: value for name, value in os.environ.items() if "DATABASE" not in name}
        with open(self.folder / "worker.log", "ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "relaxforge.cli.main", "worker", "--database-url-file", str(url_file),
                    "--organization", str(self.scope.organization_id), "--work-dir", str(self.folder / "work"),
                    "--poll", "0.1", "--agent-sandbox", "none", *flags,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=given,
            )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def wait_for(holds: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Poll until ``holds`` gives something; what it gave."""
    deadline = time.monotonic() + patience_s
    while not (found := holds()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)
    return found
