"""Server-sent events: what changed since the last look, signs of life meanwhile, and an end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

from fastapi import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from relaxforge.core.errors import StorageError
from relaxforge.web.caller import caller_of
from relaxforge.web.errors import Problem

ALIVE_S = 15.0
RECONNECT_MS = 2000


@dataclass(frozen=True, slots=True)
class Event:
    """``name`` is what the browser listens to, ``key`` says what it is about, ``data`` is its text (JSON or HTML)."""

    name: str
    key: str
    data: str


@dataclass(frozen=True, slots=True)
class Look:
    """All there is to know now; only what changed since the last look is sent. ``ended``: nothing more will change."""

    events: tuple[Event, ...]
    ended: bool = False


class Streams:
    """How many live views each organization holds open."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[UUID] = Counter()

    @contextmanager
    def one(self, organization_id: UUID) -> Iterator[None]:
        """Errors: ``Problem`` 429 when there are as many as may be."""
        if self._open[organization_id] >= self._most:
            raise Problem(
                429,
                "too_many_streams",
                f"{self._most} live views are open in this organization; close one",
                headers={"Retry-After": "5"},
            )
        self._open[organization_id] += 1
        try:
            yield
        finally:
            self._open[organization_id] -= 1


class LiveResponse(StreamingResponse):
    """Calls ``look`` every ``config.event_poll_s`` seconds until it says that nothing more will change."""

    def __init__(self, request: Request, look: Callable[[], Awaitable[Look]]) -> None:
        super().__init__(_frames(request, look), media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._streams: Streams = request.app.state.streams
        self._organization_id = caller_of(request).organization_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.one(self._organization_id):
            await super().__call__(scope, receive, send)


async def _frames(request: Request, look: Callable[[], Awaitable[Look]]) -> AsyncIterator[str]:
    config, closing = request.app.state.config, request.app.state.closing
    sent: dict[str, str] = {}
    end = time.monotonic() + config.event_stream_s
    alive = time.monotonic()
    yield f"retry: {RECONNECT_MS}\n\n"
    while not closing.is_set() and time.monotonic() < end:
        try:
            now = await look()
        except StorageError:
            return  # The browser comes back by itself, and so does the database.
        for event in now.events:
            if sent.get(event.key) != event.data:
                sent[event.key], alive = event.data, time.monotonic()
                yield frame(event.name, event.data)
        if now.ended:
            yield frame("end", "{}")
            return
        if time.monotonic() - alive > ALIVE_S:
            alive = time.monotonic()
            yield ": alive\n\n"
        with suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), config.event_poll_s)


def frame(name: str, data: str) -> str:
    """One event on the wire; its data may have several lines."""
    lines = "".join(f"data: {line}\n" for line in data.replace("\r", "\n").split("\n"))
    return f"event: {name}\n{lines}\n"
