"""Our model API in a process of its own: with the scripted engine behind it, or ``--alone``.

``--alone`` answers every request from memory, so what is measured is HTTP and canonicalisation. Prints one JSON line
with address, process id and one credential per Session, then serves until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import time
from itertools import count
from typing import TYPE_CHECKING

import uvloop

from mock_upstream import ANSWER
from relaxforge.agents.config import AgentConfig
from relaxforge.core.messages import Message
from relaxforge.core.sessions import Task
from relaxforge.core.turns import ModelTurn, TextPiece, Usage
from relaxforge.engine.scripted.engine import ScriptedEngine
from relaxforge.engine.scripted.rules import Rule
from relaxforge.forest.config import HistoryConfig
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.server import Gateway
from relaxforge.models.resolve import resolve
from relaxforge.render.config import RenderConfig
from relaxforge.render.renderer import Renderer
from relaxforge.rollout.config import RolloutConfig
from relaxforge.rollout.factory import SessionFactory
from relaxforge.rollout.registry import SessionRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from relaxforge.core.messages import ModelRequest, Tool
    from relaxforge.core.ports import TurnHandler


class MemorySession:
    """A door with nothing behind it."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.known: dict[bytes, Message | tuple[Message, ...]] = {}
        self.known_tools: dict[bytes, tuple[Tool, ...]] = {}
        self.known_fields: set[str] = set()
        self._numbers = count()
        self._message = Message("assistant", ANSWER)

    async def turn(self, request: ModelRequest, said: Callable[[TextPiece], None] | None = None) -> ModelTurn:
        del request, said
        return ModelTurn(f"{self.session_id}-{next(self._numbers)}", self._message, "stop", Usage(1, 1))

    def left(self, request: ModelRequest) -> None:
        """Nobody is waited for."""

    async def lost(self, request: ModelRequest) -> None:
        """There is no generation to end."""

    async def count(self, request: ModelRequest) -> int:
        return len(request.messages)

    def refused(self, request_api: str, error: Exception) -> None:
        print(request_api, error)

    def delivered(self, request_id: str, complete: bool) -> None:
        pass


class MemorySessions:
    """A handler over ``count`` of them; the credential is the id."""

    def __init__(self, count: int) -> None:
        self.keys = [f"session-{number}" for number in range(count)]
        self._sessions = {key: MemorySession(key) for key in self.keys}

    def open(self, credential: str) -> MemorySession:
        return self._sessions[credential]


def scripted_sessions(count: int, replies: tuple[str, ...] = (ANSWER,)) -> tuple[SessionRegistry, list[str]]:
    """One leased Group of ``count`` real Sessions over the scripted engine, and their credentials.

    Each Session hears the ``replies`` one after the other, then the last one again and again.
    """
    renderer = Renderer.load(resolve("tiny").path, RenderConfig())
    rules = (Rule("bench", replies=replies),)
    engine = ScriptedEngine(rules, renderer.tokenizer, renderer.stop_token_ids[0], vocab_size=1 << 20)
    registry = SessionRegistry()
    factory = SessionFactory(RolloutConfig(), AgentConfig(), HistoryConfig(), engine, renderer, registry)
    group = factory.group(0, "train", Task(0, None, {}), count)
    group.lease()
    return registry, [str(session.identity.credential) for session in group.sessions]


class LoopLag:
    """How late the event loop wakes a task that asked for every ``EVERY_S``; reading it begins a new measurement."""

    EVERY_S = 0.005

    def __init__(self) -> None:
        self._late_ms: list[float] = []

    async def watch(self) -> None:
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(self.EVERY_S)
            self._late_ms.append((time.perf_counter() - asked - self.EVERY_S) * 1e3)

    def read(self) -> dict[str, float]:
        late, self._late_ms = sorted(self._late_ms), []
        last = len(late) - 1
        return {"p50_ms": late[last // 2], "p99_ms": late[last * 99 // 100], "max_ms": late[last]} if late else {}


async def serve(handler: TurnHandler, keys: list[str]) -> None:
    lag = LoopLag()
    gateway = Gateway(handler, GatewayConfig(), ("scripted",), lag.read)
    await gateway.start()
    gc.collect()
    gc.freeze()  # As a run does.
    told = {"url": gateway.base_url, "pid": os.getpid(), "keys": keys, "admin": gateway.admin_url}
    print(json.dumps(told), flush=True)
    await lag.watch()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--sessions", type=int, default=1)
    options = parser.parse_args()
    handler: TurnHandler
    if options.alone:
        handler = MemorySessions(options.sessions)
        keys = handler.keys
    else:
        handler, keys = scripted_sessions(options.sessions)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(handler, keys))
