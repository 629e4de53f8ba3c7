"""A real PostgreSQL for tests, with a freshly migrated database for each.

RELAXFORGE_TEST_POSTGRES=<URL of a superuser> uses a running server instead of an embedded one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relaxforge.store.admin import create_first_owner, install
from relaxforge.store.database import Database, Scope
from relaxforge.store.embedded import EmbeddedPostgres
from relaxforge.store.urls import with_parts


@dataclass(frozen=True)
class TwoOrganizations:
    """Two organizations that must not see each other; each has one owner, whose password hash is ``no password``."""

    a: Scope
    b: Scope


@dataclass(frozen=True)
class _Server:
    admin_url: str
    template: str
    passwords: dict[str, str]

    def admin(self, statement: str) -> None:
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(statement)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a superuser of a server that the tests may do anything with."""
    if url := os.environ.get("RELAXFORGE_TEST_POSTGRES"):
        yield url
        return
    folder = Path(tempfile.mkdtemp(prefix="relaxforge-test-"))
    folder.chmod(0o711)  # the server's account, where we are root, must be able to enter
    try:
        with EmbeddedPostgres(folder, {"fsync": "off", "max_connections": "200"}) as server:
            yield server.admin_url
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def _migrated(postgres_server: str) -> Iterator[_Server]:
    passwords = {"app": secrets.token_hex(), "worker": secrets.token_hex()}
    server = _Server(postgres_server, f"relaxforge_template_{secrets.token_hex(4)}", passwords)
    server.admin(f"CREATE DATABASE {server.template}")
    url = with_parts(postgres_server, dbname=server.template)
    install(url, app_password=passwords["app"], worker_password=passwords["worker"])
    yield server
    server.admin(f"DROP DATABASE {server.template}")


@pytest.fixture
def database_urls(_migrated: _Server) -> Iterator[dict[str, str]]:
    """URLs of a fresh migrated database: ``admin`` (superuser), ``owner`` (acts as the owner), ``app``, ``worker``."""
    name = f"relaxforge_test_{secrets.token_hex(6)}"
    _migrated.admin(f"CREATE DATABASE {name} TEMPLATE {_migrated.template}")
    admin = with_parts(_migrated.admin_url, dbname=name)
    yield {
        "admin": with_parts(admin, options="-csearch_path=relaxforge"),
        "owner": with_parts(admin, options="-csearch_path=relaxforge -crole=relaxforge_owner"),
        "app": with_parts(admin, user="relaxforge_app", password=_migrated.passwords["app"]),
        "worker": with_parts(admin, user="relaxforge_worker", password=_migrated.passwords["worker"]),
    }
    _migrated.admin(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def on_loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs coroutines, one after the other, on the one event loop of this test, on which its databases are open."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def app_database(database_urls: dict[str, str], on_loop: Callable[..., Any]) -> Iterator[Database]:
    """The fresh database as the application opens it; use it inside ``on_loop``."""
    yield from _opened(database_urls["app"], on_loop)


@pytest.fixture
def worker_database(database_urls: dict[str, str], on_loop: Callable[..., Any]) -> Iterator[Database]:
    """The fresh database as a worker opens it; use it inside ``on_loop``."""
    yield from _opened(database_urls["worker"], on_loop)


def _opened(url: str, on_loop: Callable[..., Any]) -> Iterator[Database]:
    database = Database(url)
    on_loop(database.open())
    yield database
    on_loop(database.close())


@pytest.fixture
def two_organizations(database_urls: dict[str, str]) -> TwoOrganizations:
    made = [
        create_first_owner(
            database_urls["admin"],
            organization=f"Organization {letter}",
            email=f"owner@{letter}.example",
            name=f"Owner {letter}",
            password_hash="no password",
            must_change_password=False,
        )
        for letter in "ab"
    ]
    return TwoOrganizations(*(Scope(organization, user) for organization, user in made))
