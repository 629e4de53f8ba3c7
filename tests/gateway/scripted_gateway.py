"""A real gateway on a free port, in a thread with an event loop of its own, and Sessions that answer from a script."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import uvloop

from relaxforge.core.errors import RequestError
from relaxforge.core.ids import Credential
from relaxforge.core.messages import Message, ModelRequest, Tool
from relaxforge.core.turns import ModelTurn, TextPiece, Usage
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.server import Gateway

PATIENCE_S = 20


def say(text: str = "fine", **rest: Any) -> ModelTurn:
    """A committed answer with this text."""
    message = rest.pop("message", None) or Message("assistant", text)
    return ModelTurn("r0", message, rest.pop("finish", "stop"), rest.pop("usage", Usage(7, 3)), **rest)


class ScriptedSession:
    """A SessionDoor whose answers come from ``script``; everything that the gateway tells it is kept for the test."""

    def __init__(self, session_id: str) -> None:
        self.credential = Credential.issue(session_id)
        self.known: dict[bytes, Message | tuple[Message, ...]] = {}
        self.known_tools: dict[bytes, tuple[Tool, ...]] = {}
        self.known_fields: set[str] = set()
        self.script: Callable[[ModelRequest], ModelTurn] = lambda request: say()
        self.requests: list[ModelRequest] = []
        self.counted: list[ModelRequest] = []
        self.refusals: list[Exception] = []
        self.left_ones: list[ModelRequest] = []
        self.lost_ones: queue.Queue[ModelRequest] = queue.Queue()
        self.deliveries: queue.Queue[tuple[str, bool]] = queue.Queue()
        self.serving = threading.Event()
        self.gate: asyncio.Event | None = None
        self.ended = False
        self.said: Callable[[TextPiece], None] | None = None

    @property
    def session_id(self) -> str:
        return self.credential.session_id

    @property
    def request(self) -> ModelRequest:
        return self.requests[-1]

    async def turn(self, request: ModelRequest, said: Callable[[TextPiece], None] | None = None) -> ModelTurn:
        self.said = said
        self.requests.append(request)
        self.serving.set()
        if self.gate is not None:
            await self.gate.wait()
        return self.script(request)

    def left(self, request: ModelRequest) -> None:
        self.left_ones.append(request)

    async def lost(self, request: ModelRequest) -> None:
        self.lost_ones.put(request)
        if self.gate is not None:
            self.gate.set()

    async def count(self, request: ModelRequest) -> int:
        self.counted.append(request)
        return 17

    def refused(self, request_api: str, error: Exception) -> None:
        assert request_api in ("chat", "responses", "messages")
        self.refusals.append(error)

    def delivered(self, request_id: str, complete: bool) -> None:
        self.deliveries.put((request_id, complete))


class ScriptedHandler:
    """A TurnHandler over ScriptedSessions."""

    def __init__(self) -> None:
        self.sessions: dict[str, ScriptedSession] = {}
        self._numbers = count()

    def new(self) -> ScriptedSession:
        session = ScriptedSession(f"train-g{next(self._numbers):06d}-00")
        self.sessions[session.session_id] = session
        return session

    def open(self, credential: str) -> ScriptedSession:
        presented = Credential.parse(credential)
        session = self.sessions.get(presented.session_id) if presented else None
        if presented is None or session is None or not session.credential.opens(presented):
            raise RequestError("no such Session", status=404, code="session_not_found")
        if session.ended:
            raise RequestError("this Session has ended", status=404, code="session_discarded")
        return session


class RunningGateway:
    """The gateway and the loop it runs on, seen from the test's thread."""

    def __init__(self, config: GatewayConfig) -> None:
        self.handler = ScriptedHandler()
        self.state: dict[str, Any] = {}
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.gateway = Gateway(self.handler, config, ("tiny", "other"), lambda: self.state)
        self.run(self.gateway.start())
        self.url = self.gateway.base_url

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def release(self, session: ScriptedSession) -> None:
        assert session.gate is not None
        self.loop.call_soon_threadsafe(session.gate.set)

    def stop(self) -> None:
        self.run(self.gateway.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE_S)
        self.loop.close()
