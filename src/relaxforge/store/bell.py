"""Rings when a job is announced. A hint that saves waiting; whoever hears nothing looks by itself after a while."""

from __future__ import annotations

import asyncio
import contextlib

import psycopg

from relaxforge.store.jobs import CHANNEL


class JobBell:
    """A connection of its own that listens, made again whenever it breaks."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.AsyncConnection | None = None

    async def wait(self, seconds: float) -> None:
        """Until a job is announced, and no longer than ``seconds``."""
        started = asyncio.get_running_loop().time()
        try:
            async for _ in (await self._listening()).notifies(timeout=seconds, stop_after=1):
                return
        except psycopg.OperationalError:
            await self.close()
            await asyncio.sleep(max(0.0, started + seconds - asyncio.get_running_loop().time()))

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.OperationalError):
                await connection.close()

    async def _listening(self) -> psycopg.AsyncConnection:
        if self._connection is None:
            self._connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
            await self._connection.execute(f"LISTEN {CHANNEL}")
        return self._connection
