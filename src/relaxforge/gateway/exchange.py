"""One HTTP request and its answer, over the ASGI calling convention as uvicorn implements it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, MutableMapping
from typing import Any

from relaxforge.core.errors import RequestError
from relaxforge.core.turns import TextPiece
from relaxforge.gateway.dialect import Headers

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CHUNK = 64 * 1024
"""Longest piece of an answer that is handed over before looking whether the client is still there."""


_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Exchange:
    """Reads a body within a limit, then watches for the client to go away until the answer is written."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers: Headers = dict(scope["headers"])
        self._receive = receive
        self._send = send
        self._gone: asyncio.Future[Any] | None = None
        self._started = False
        self._failure: Callable[[RequestError], bytes] | None = None
        self._after: list[asyncio.Future[None]] = []
        self.session_id: str | None = None
        """For the log; set once the credential has opened a Session."""

    async def body(self, limit: int) -> bytes:
        """The whole body. Errors: ``RequestError`` 413 above ``limit`` bytes, 499 when the client hangs up."""
        declared = self.headers.get(b"content-length", b"0")
        if int(declared) > limit:
            raise _too_large(int(declared), limit)
        pieces, size, more = [], 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise RequestError("the client hung up in the middle of its request", status=499, code="client_closed")
            pieces.append(message["body"])
            size += len(message["body"])
            if size > limit:
                raise _too_large(size, limit)
            more = message["more_body"]
        # From here on the only news can be that the client closes; asking for it also keeps the socket being read.
        self._gone = asyncio.ensure_future(self._receive())
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def answer(self, status: int, body: bytes, *extra: tuple[bytes, bytes]) -> bool:
        """Write the answer; whether all of it was handed to the network while the client was still there.

        Only the first answer counts: a fault that comes after it cannot be told to the client any more.
        """
        if self._started or self._has_gone():
            return False
        self._started = True
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *extra,
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        return await self._write(body)

    @contextlib.asynccontextmanager
    async def stream(
        self, heartbeat: bytes, every_s: float, failure: Callable[[RequestError], bytes]
    ) -> AsyncIterator[None]:
        """Begin an event stream with a ``heartbeat``, repeated every ``every_s`` seconds while the block runs.

        ``failure`` makes the frames that end the stream when an error comes after its beginning.
        """
        if not self._has_gone():
            self._started, self._failure = True, failure
            await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            await self.push(heartbeat)
        beating = asyncio.create_task(self._beat(heartbeat, every_s), name="heartbeat")
        try:
            yield
        finally:
            beating.cancel()

    @contextlib.asynccontextmanager
    async def pieces(self, frames: Callable[[TextPiece], bytes]) -> AsyncIterator[Callable[[TextPiece], None]]:
        """A function that sends the ``frames`` of a piece while the block runs; pieces that came too late are not."""
        waiting: asyncio.Queue[TextPiece] = asyncio.Queue()

        async def send() -> None:
            while True:
                await self.push(frames(await waiting.get()))

        sending = asyncio.create_task(send(), name="pieces")
        try:
            yield waiting.put_nowait
        finally:
            sending.cancel()

    async def push(self, frames: bytes) -> None:
        """Send frames of a stream that goes on."""
        if self._started and not self._has_gone():
            await self._send({"type": "http.response.body", "body": frames, "more_body": True})

    async def finish(self, frames: bytes) -> bool:
        """End the stream; whether all of it was handed to the network while the client was still there."""
        self._failure = None
        return self._started and await self._write(frames)

    async def refuse(self, error: RequestError, body: bytes, *extra: tuple[bytes, bytes]) -> None:
        """Say what is wrong: as the answer, or as the end of a stream that has begun."""
        if self._failure is not None:
            await self.finish(self._failure(error))
        else:
            await self.answer(error.status, body, *extra)

    @contextlib.contextmanager
    def departure(
        self, grace_s: float, left: Callable[[], None], lost: Callable[[], Coroutine[Any, Any, None]]
    ) -> Iterator[None]:
        """When the client goes while the block runs, call ``left``; when it still runs ``grace_s`` later, ``lost``."""
        assert self._gone is not None  # noqa: S101  (for the type checker: the body has been read)
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def gone(_: asyncio.Future[Any]) -> None:
            left()
            timers.append(loop.call_later(grace_s, lambda: self._after.append(asyncio.ensure_future(lost()))))

        self._gone.add_done_callback(gone)
        try:
            yield
        finally:
            self._gone.remove_done_callback(gone)
            for timer in timers:
                timer.cancel()

    async def _beat(self, heartbeat: bytes, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self.push(heartbeat)

    async def _write(self, body: bytes) -> bool:
        """The rest of an answer, piece by piece."""
        for start in range(0, max(len(body), 1), CHUNK):
            if self._has_gone():
                return False
            more = start + CHUNK < len(body)
            await self._send({"type": "http.response.body", "body": body[start : start + CHUNK], "more_body": more})
        return not self._has_gone()

    def close(self) -> None:
        if self._gone is not None:
            self._gone.cancel()

    def _has_gone(self) -> bool:
        return self._gone is not None and self._gone.done()


def _too_large(size: int, limit: int) -> RequestError:
    return RequestError(
        f"the body has at least {size} bytes and the limit is {limit}; raise --agentic-max-body-mb",
        status=413,
        code="request_too_large",
    )
