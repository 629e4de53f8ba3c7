"""A workspace that runs: a real server on loopback, on a fresh database with two organizations."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from relaxforge.store import identity
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
        from datetime import UTC, datetime, timedelta

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
    thread = LoopThread()
    database = Database(database_urls["app"])
    app = create_app(web_config, database, open_vault(tmp_path / "secrets-key"))
    server = Server(app, web_config, bind(web_config))
    serving = thread.start(server.run_until_stopped())
    found = Workspace(server.origin, web_config, database, two_organizations.a, two_organizations.b, thread, app)
    try:
        _await_answer(found.url, serving)
        yield found
    finally:
        for client in found.clients:
            client.close()
        thread.loop.call_soon_threadsafe(server.stop)
        serving.result(30)
        thread.close()


def _await_answer(url: str, serving: Future[Any]) -> None:
    while not serving.done():
        try:
            httpx.get(f"{url}/health", trust_env=False)
            return
        except httpx.TransportError:
            continue
    serving.result()
