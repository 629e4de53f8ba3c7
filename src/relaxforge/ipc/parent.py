"""Main's end: start a child process, call it, and notice when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from relaxforge.ipc.child import FD_VARIABLE
from relaxforge.ipc.frames import HEADER, Frame, Kind, pack, unpack


class ChildDied(Exception):
    """The child process ended while somebody waited for it; the text names it and its exit status."""


class ChildFailed(Exception):
    """The child answered a call with an error; the text is the child's."""


class Child:
    """One of our own processes (``python -m module``), connected by a socket that doubles as its lifeline.

    Its stdin is empty; stdout and stderr go to ``log_path`` when given, else to ours. ``call`` may run concurrently.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process, end: socket.socket) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._socket = end
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._listeners: dict[int, Callable[[Any], None]] = {}
        self._next = 0
        self._down: str | None = None

    @classmethod
    async def start(
        cls,
        name: str,
        module: str,
        *,
        args: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        log_path: str | None = None,
    ) -> Child:
        ours, theirs = socket.socketpair()
        output = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if log_path else None
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *args,
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(theirs.fileno(),),
                env={**(os.environ if env is None else env), FD_VARIABLE: str(theirs.fileno())},
                start_new_session=True,
            )  # fmt: skip
        finally:
            theirs.close()
            if output is not None:
                os.close(output)
        child = cls(name, process, ours)
        reader, child._writer = await asyncio.open_connection(sock=ours)
        child._reading = asyncio.create_task(child._read(reader), name=f"ipc-{name}")
        return child

    async def call(self, method: str, body: Any = None, on_event: Callable[[Any], None] | None = None) -> Any:
        """Ask and wait for the answer. Errors: ``ChildFailed``, ``ChildDied``."""
        number = self._number()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        if on_event is not None:
            self._listeners[number] = on_event
        try:
            await self._send("call", number, method, body)
            return await future
        finally:
            self._waiting.pop(number, None)
            self._listeners.pop(number, None)
            if future.done() and not future.cancelled():
                future.exception()  # Whoever could not even send has been told already.

    async def notify(self, method: str, body: Any = None) -> None:
        """Tell without waiting for an answer. Errors: ``ChildDied``."""
        await self._send("notice", self._number(), method, body)

    async def ended(self) -> str:
        """Until the child is gone, called or not; says how it ended."""
        if self._reading is not None:
            await asyncio.shield(self._reading)
        return self._obituary()

    async def close(self, grace_s: float = 5.0) -> None:
        """Close the lifeline, give the child ``grace_s`` seconds to end by itself, then kill it."""
        if self._writer is not None:
            self._writer.close()
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            self.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading  # It ends with the socket, after it has told everybody who still waits.

    def kill(self) -> None:
        """End a child that does not do what it is asked. Whoever waits for it learns that it died."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def _number(self) -> int:
        self._next += 1
        return self._next

    async def _send(self, kind: Kind, number: int, method: str, body: Any) -> None:
        if self._down is not None or self._writer is None:
            raise ChildDied(self._obituary())
        try:
            self._writer.write(pack(Frame(kind, number, method, body)))
            await self._writer.drain()
        except ConnectionError:
            if self._reading is not None:
                await self._reading  # It learns how the child ended.
            raise ChildDied(self._obituary()) from None

    def _obituary(self) -> str:
        return self._down or f"{self.name} (pid {self.pid}) is not connected"

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(HEADER), "little")
                self._dispatch(unpack(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The socket closed: the child is ending or has ended.
        code = await self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        if code == -signal.SIGKILL:
            how += " (is the machine out of memory?)"
        self._down = f"{self.name} (pid {self.pid}) ended with {how}"
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ChildDied(self._down))

    def _dispatch(self, frame: Frame) -> None:
        if frame.kind == "event":
            if listener := self._listeners.get(frame.number):
                listener(frame.body)
            return
        future = self._waiting.get(frame.number)
        if future is None or future.done():
            return
        if frame.kind == "error":
            future.set_exception(ChildFailed(str(frame.body)))
        else:
            future.set_result(frame.body)
