"""A workspace that runs: a real server on loopback, on a fresh database with two organizations."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
import structlog
from browser import chromium, visit  # noqa: F401 - fixtures
from evidence_story import Story

from relaxforge.core.evidence import TrajectoryStep, TrialEvidence, Verdict
from relaxforge.credit.summary import summarise
from relaxforge.environments.bundle import open_bundle, pack, read_bundle
from relaxforge.export.trajectory import trajectory_file
from relaxforge.observe.log import configure
from relaxforge.store import environments, evaluations, identity, jobs, trials
from relaxforge.store.database import Database, Scope, Transaction
from relaxforge.store.vault import open_vault
from relaxforge.web.app import create_app
from relaxforge.web.config import WebConfig
from relaxforge.web.passwords import hash_password
from relaxforge.web.server import Server, bind

PASSWORD = "a password for tests"
PASSWORD_HASH = hash_password(PASSWORD)


class LoopThread:
    """An event loop of its own, in a thread of its own; coroutines are run on it from outside."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="workspace")
        self._thread.start()

    def start(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Any) -> Any:
        return self.start(coroutine).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@dataclass(frozen=True)
class Evidence:
    """What ``Workspace.evidence`` made; ``trials`` are the rows of ``trials.get_trial``."""

    environment_id: UUID
    version_id: UUID
    configuration_id: UUID
    run_id: UUID
    trials: list[Any]


MANIFEST = """
name = "corner-shop"
[agent]
command = "python agent.py"
[[task]]
input = "order milk"
"""


def packed(**files: str) -> bytes:
    """A small environment as it is uploaded."""
    contents = {"environment.toml": MANIFEST, "agent.py": "pass\n", **files}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in contents.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        return pack(read_bundle(folder))


async def _work(worker: Database, scope: Scope, run_id: UUID, rewards: Sequence[float | None]) -> list[UUID]:
    lease = await jobs.claim(worker, "test", 60.0, scope.organization_id)
    assert lease is not None
    async with worker.scope(lease.scope) as tx:
        run = await evaluations.get_run(tx, run_id)
        await trials.create_all(tx, lease, run, 1, trials.Author("shopper", "1", "scripted"))
        planned = await trials.planned(tx, run_id)
    for plan, reward in zip(planned, rewards, strict=True):
        async with worker.scope(lease.scope) as tx:
            await trials.start(tx, lease, plan.trial_id, f"session-{plan.number}")
            await trials.finish(tx, lease, plan.trial_id, ended_with(reward))
    async with worker.scope(lease.scope) as tx:
        await evaluations.conclude(tx, run_id, "succeeded", summarise)
        await jobs.finish(tx, lease, "succeeded")
    return [plan.trial_id for plan in planned]


def ended_with(reward: float | None, steps: int = 2) -> TrialEvidence:
    """An attempt in which the shelf was right and the order, unless the reward is 1, was not."""
    done = [TrajectoryStep(number + 1, "mcp", "initialize", f"shelf {number}") for number in range(steps)]
    stages = {"stage_inventory": 1, "stage_checkout": int(reward == 1)} if reward is not None else {}
    category = "verifier_error" if reward is None else None if reward == 1 else "wrong_result"
    verdict = Verdict(reward, "not_scored" if reward is None else "scored", str(reward), stages, {}, category)
    line = json.dumps({"session_id": "s", "status": "completed", "forest": [], "requests": []}).encode()
    return TrialEvidence("completed", verdict, trajectory_file("opened the shop", done), line, len(done), turns=1)


@dataclass
class Workspace:
    """A server that runs. ``run`` executes ``async def go(tx)`` in a transaction of an organization, on its loop."""

    url: str
    config: WebConfig
    database: Database
    a: Scope
    b: Scope
    loop: LoopThread
    app: Any
    worker_url: str
    events_log: Path
    port: int
    clients: list[httpx.Client] = field(default_factory=list)

    def run(self, scope: Scope, go: Any) -> Any:
        async def inside() -> Any:
            async with self.database.scope(scope) as tx:
                return await go(tx)

        return self.loop.run(inside())

    def person(self, scope: Scope, role: str, email: str | None = None) -> str:
        """The email address of a new member who has chosen ``PASSWORD``."""
        email = email or f"{role}-{len(self.clients)}@{scope.organization_id}.example"

        async def go(tx: Transaction) -> UUID:
            user_id, _ = await identity.add_member(tx, email=email, name=role, password_hash=PASSWORD_HASH, role=role)
            return user_id

        user_id = self.run(scope, go)

        async def choose(tx: Transaction) -> None:
            await identity.set_password(tx, user_id, PASSWORD_HASH)

        self.run(Scope(scope.organization_id, user_id), choose)
        return email

    def evidence(self, scope: Scope, rewards: Sequence[float | None] = (0.15, 1.0)) -> Evidence:
        """One run of an environment version by a worker, with an attempt of each reward."""
        return self.loop.run(self._evidence(scope, rewards))

    async def _evidence(self, scope: Scope, rewards: Sequence[float | None]) -> Evidence:
        async with self.database.scope(scope) as tx:
            environment = await environments.create_environment(tx, name="corner shop")
            bundle = open_bundle(packed())
            version = await environments.publish(
                tx, environment["id"], manifest=asdict(bundle.manifest), digest=bundle.digest, package=packed(),
                files=[file.listed for file in bundle.files],
            )  # fmt: skip
            configuration = await evaluations.create_configuration(
                tx, environment_id=environment["id"], name="attempts", attempt_count=len(rewards), agent_name="shopper",
                agent_version="1", model={"engine": "scripted"},
            )  # fmt: skip
            started = await evaluations.start_run(
                tx, environment_version_id=version.version_id, evaluator_configuration_id=configuration["id"]
            )
        async with Database(self.worker_url, most=2) as worker:
            attempts = await _work(worker, scope, started.evaluation_run_id, rewards)
        async with self.database.scope(scope) as tx:
            rows = [await trials.get_trial(tx, trial_id) for trial_id in attempts]
        return Evidence(environment["id"], version.version_id, configuration["id"], started.evaluation_run_id, rows)

    def client(self, **headers: str) -> httpx.Client:
        """Nobody, until it signs in."""
        self.clients.append(httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False))
        return self.clients[-1]

    def browser(self, scope: Scope, role: str = "owner") -> httpx.Client:
        """A new person of that role, signed in, who sends the CSRF token with everything."""
        client, email = self.client(), self.person(scope, role)
        answer = client.post("/api/v1/sign-in", json={"email": email, "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        client.headers["X-CSRF-Token"] = answer.json()["csrfToken"]
        return client

    def token(self, scope: Scope, *scopes: str, role: str = "owner") -> httpx.Client:
        """A program with an API token."""

        async def go(tx: Transaction) -> str:
            expires_at = datetime.now(UTC) + timedelta(hours=1)
            user_id, _ = await identity.add_member(
                tx, email=f"bot-{len(self.clients)}@{scope.organization_id}.example", name="", role=role,
                password_hash=PASSWORD_HASH,
            )  # fmt: skip
            _, token = await identity.create_token(
                tx, user_id=user_id, name="test", scopes=scopes, expires_at=expires_at
            )
            return token

        return self.client(Authorization=f"Bearer {self.run(scope, go)}")


@pytest.fixture
def web_config() -> WebConfig:
    return WebConfig(port=0, event_poll_s=0.05, sign_ins_per_address=1000)


@pytest.fixture
def workspace(web_config: WebConfig, database_urls: Any, two_organizations: Any, tmp_path: Path) -> Iterator[Workspace]:
    configure(tmp_path / "events.log")
    thread = LoopThread()
    database = Database(database_urls["app"])
    app = create_app(web_config, database, open_vault(tmp_path / "secrets-key"))
    server = Server(app, web_config, bind(web_config))
    serving = thread.start(server.run_until_stopped())
    found = Workspace(
        server.origin,
        web_config,
        database,
        two_organizations.a,
        two_organizations.b,
        thread,
        app,
        database_urls["worker"],
        tmp_path / "events.log",
        server.bound.getsockname()[1],
    )
    try:
        _await_answer(found.port, serving)
        yield found
    finally:
        for client in found.clients:
            client.close()
        thread.loop.call_soon_threadsafe(server.stop)
        serving.result(30)
        thread.close()
        structlog.reset_defaults()


def _await_answer(port: int, serving: Future[Any]) -> None:
    while not serving.done():
        try:
            httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)
            return
        except httpx.TransportError:
            continue
    serving.result()


@pytest.fixture
def story(workspace, database_urls):
    """What happened in a workspace, told through the store; a version is published already."""
    worker = Database(database_urls["worker"])
    workspace.loop.run(worker.open())
    made = Story(workspace, worker)
    made.publish()
    yield made
    workspace.loop.run(worker.close())
