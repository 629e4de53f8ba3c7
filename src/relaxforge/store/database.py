"""Connections to Postgres. The only way to a cursor is a transaction that says whose rows it may see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg.adapt import PyFormat
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb, set_json_dumps
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from relaxforge.core.errors import StorageError
from relaxforge.core.text import Cleaner
from relaxforge.store.queries import query
from relaxforge.store.urls import with_parts

Row = dict[str, Any]
_OPTIONS = "-c search_path=relaxforge -c timezone=UTC"


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose rows a transaction may see and touch; ``user_id`` is ``None`` for workers and tokens without a person."""

    organization_id: UUID
    user_id: UUID | None = None


class Transaction:
    """Runs named queries (``sql/queries/<file>.sql``) inside one organization's scope."""

    def __init__(
        self, connection: psycopg.AsyncConnection[Row], scope: Scope | None, artifact_url: str | None = None
    ) -> None:
        self.connection = connection
        self.scope = scope
        self.artifact_url = artifact_url

    async def all(self, name: str, /, **values: Any) -> list[Row]:
        """Every row of the query ``name`` (``file.query``); ``values`` fill its ``%(name)s``."""
        return await (await self._run(name, values)).fetchall()

    async def one(self, name: str, /, **values: Any) -> Row | None:
        """The first row, or ``None``."""
        return await (await self._run(name, values)).fetchone()

    async def run(self, name: str, /, **values: Any) -> int:
        """Run a statement without result rows; how many rows it touched."""
        return (await self._run(name, values)).rowcount

    async def stream(self, name: str, /, *, batch: int = 100, **values: Any) -> AsyncIterator[Row]:
        """The rows of the query ``name``, fetched ``batch`` at a time through a cursor on the server."""
        async with self.connection.cursor(name="stream") as cursor:
            cursor.itersize = batch
            await cursor.execute(query(name), self._given(values))
            async for row in cursor:
                yield row

    async def _run(self, name: str, values: Mapping[str, Any]) -> psycopg.AsyncCursor[Row]:
        return await self.connection.execute(query(name), self._given(values))

    def _given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """PostgreSQL holds neither NUL nor lone surrogates: what nobody cleaned before is cleaned here."""
        cleaner = Cleaner()
        clean = {name: cleaner.text(value) if isinstance(value, str) else value for name, value in values.items()}
        return {"organization_id": self.scope.organization_id if self.scope else None, **clean}


class Database:
    """A pool of at most ``most`` connections of one role (the application's or a worker's).

    ``artifact_url`` is an fsspec folder (``file:///...``, ``s3://...``) for artifacts; ``None`` keeps them in tables.
    """

    def __init__(self, url: str, *, most: int = 10, timeout_s: float = 10.0, artifact_url: str | None = None) -> None:
        self._url = with_parts(url)
        self._artifact_url = artifact_url
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[Row]] = AsyncConnectionPool(
            self._url,
            min_size=1,
            max_size=most,
            timeout=timeout_s,
            open=False,
            kwargs={
                "row_factory": dict_row,
                "autocommit": False,
                "prepare_threshold": None,  # DISCARD ALL forgets prepared statements, and psycopg would not know
                "options": "-c search_path=relaxforge -c timezone=UTC",
            },
            configure=_configure,
            reset=_reset,
            check=AsyncConnectionPool.check_connection,  # one that a restarted server cut is replaced, not handed out
        )

    async def open(self) -> None:
        """Connect. Errors: ``StorageError`` when the server cannot be reached, or does not let us in.

        The first connection is one by itself, because a pool says that it waited and not why.
        """
        try:
            await (await psycopg.AsyncConnection.connect(self._url, connect_timeout=10)).close()
            await self._pool.open(wait=True)
        except (psycopg.OperationalError, PoolTimeout) as error:
            await self._pool.close()
            raise StorageError(f"the database cannot be reached: {str(error).strip()}") from error

    async def close(self) -> None:
        await self._pool.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def scope(self, scope: Scope) -> AsyncIterator[Transaction]:
        """One transaction in which only the rows of ``scope.organization_id`` exist.

        Errors: ``StorageError`` when the database is gone; what the transaction did is then undone.
        """
        async with self._transaction(scope, read_only=False) as transaction:
            yield transaction

    @asynccontextmanager
    async def snapshot(self, scope: Scope) -> AsyncIterator[Transaction]:
        """As ``scope``, read-only, all queries seeing the same moment (REPEATABLE READ)."""
        async with self._transaction(scope, read_only=True) as transaction:
            yield transaction

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[Transaction]:
        """A transaction of no organization: row-level security hides every row.

        Only for the functions that find out whose turn it is: sign-in, credentials, claiming a job.
        """
        async with self._transaction(None, read_only=False) as transaction:
            yield transaction

    @asynccontextmanager
    async def _transaction(self, scope: Scope | None, *, read_only: bool) -> AsyncIterator[Transaction]:
        try:
            async with self._pool.connection() as connection, connection.transaction():
                if read_only:
                    await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if scope is not None:
                    await connection.execute(
                        "SELECT set_config('app.organization_id', %s, true), set_config('app.user_id', %s, true)",
                        (str(scope.organization_id), str(scope.user_id or "")),
                    )
                yield Transaction(connection, scope, self._artifact_url)
        except (psycopg.OperationalError, PoolTimeout) as error:
            raise StorageError(f"the database did not answer: {error}; nothing of this step was written") from error


def _json(value: Any) -> str:
    """NaN and infinity are no JSON. Errors: ``ValueError``."""
    return json.dumps(Cleaner().value(value), allow_nan=False, ensure_ascii=False)


async def _configure(connection: psycopg.AsyncConnection[Row]) -> None:
    """A dict is JSON, everywhere, without a wrapper."""
    set_json_dumps(_json, connection)
    connection.adapters.register_dumper(dict, connection.adapters.get_dumper(Jsonb, PyFormat.TEXT))


async def _reset(connection: psycopg.AsyncConnection[Row]) -> None:
    """Leave nothing of a user behind in a pooled connection; settings end with their transaction anyway."""
    await connection.set_autocommit(True)
    await connection.execute("DISCARD ALL")
    await connection.set_autocommit(False)
