"""A Session with the real renderer and the real scripted engine, and short spellings for what its agent sends."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any

import pytest

from relaxforge.core.errors import RequestError
from relaxforge.core.ids import Credential
from relaxforge.core.messages import Message, ModelRequest, RetryHint, Tool
from relaxforge.core.ports import ignore_chunk
from relaxforge.core.sessions import Mode, Task
from relaxforge.core.turns import Capabilities, GenerateRequest, Generation, ModelTurn, Sampling, TokenChunk, token_ids
from relaxforge.engine.scripted.engine import ScriptedEngine
from relaxforge.engine.scripted.rules import Rule
from relaxforge.render.renderer import Renderer
from relaxforge.rollout.session import Session, SessionIdentity, SessionLimits
from relaxforge.rollout.token_session import TokenSession

PATIENCE_S = 20
VOCABULARY = 512
SEARCH = Tool("search", "Finds pages", '{"type":"object"}')


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run one test's coroutine; a test that hangs fails."""
    return asyncio.run(asyncio.wait_for(work, PATIENCE_S))


async def until(holds: Callable[[], bool]) -> None:
    """Let everybody else work until ``holds``; ``run`` limits how long."""
    while not holds():  # noqa: ASYNC110  (what is waited for has no event of its own)
        await asyncio.sleep(0)


def user(text: str) -> Message:
    return Message("user", text)


def chat(*messages: Message, body: bytes | None = None, retry: int = 0, key: str | None = None, **rest: Any):
    """A request. Equal conversations have equal bodies unless told otherwise."""
    digest = body or sha256(b"".join(message.exact for message in messages)).digest()
    return ModelRequest("chat", "model", messages, RetryHint(digest, retry, key), **rest)


class HeardEngine(ScriptedEngine):
    """The scripted engine, with an ear at its door: what it was asked, what it sampled, and when it began to."""

    def __init__(self, renderer: Renderer, *rules: Rule, seeded: bool = False, max_context: int | None = None) -> None:
        end = renderer.stop_token_ids[0]
        super().__init__(rules, renderer.tokenizer, end, vocab_size=VOCABULARY, max_context=max_context)
        self.capabilities = Capabilities(per_request_seed=seeded, cached_tokens=False, max_context=max_context)
        self.asked: list[GenerateRequest] = []
        self.sampled: dict[str, Generation] = {}
        self.busy = asyncio.Event()
        self.first_token = asyncio.Event()

    async def generate(self, request: GenerateRequest, emit: Callable[[TokenChunk], None] = ignore_chunk) -> Generation:
        self.asked.append(request)
        self.busy.set()

        def hear(chunk: TokenChunk) -> None:
            self.first_token.set()
            emit(chunk)

        generation = await super().generate(request, hear)
        self.sampled[request.request_id] = generation
        return generation


def says(*replies: str, **rest: Any) -> Rule:
    return Rule("the test's script", replies=replies, **rest)


def new_session(
    renderer: Renderer,
    engine: ScriptedEngine,
    *,
    session_id: str = "train-g000000-00",
    mode: Mode = "train",
    seed: int = 7,
    context: int | None = None,
    response: int = 64,
    task: Task | None = None,
    leased: bool = True,
    **rest: Any,
) -> Session:
    identity = SessionIdentity(
        Credential.issue(session_id), session_id.rpartition("-")[0], mode, task or Task(0, None, {"n": 1}), seed
    )
    limits = SessionLimits(context=context, response=response, active_s=600.0, startup_s=60.0)
    session = TokenSession(identity, limits, Sampling(max_tokens=response), engine=engine, renderer=renderer, **rest)
    if leased:
        session.open_gate()
    return session


async def ask(session: Session, *messages: Message, read: bool = True, **rest: Any) -> ModelTurn:
    """One request whose answer the client reads, or loses on the way."""
    turn = await session.turn(chat(*messages, **rest))
    session.delivered(turn.request_id, read)
    return turn


async def refusal(session: Session, *messages: Message, **rest: Any) -> RequestError:
    """The error with which one request is answered."""
    with pytest.raises(RequestError) as caught:
        await session.turn(chat(*messages, **rest))
    return caught.value


def sampled_ids(renderer: Renderer, *replies: str) -> list[array[int]]:
    """The ids that the engine samples for each reply, end of turn included."""
    return [token_ids([*renderer.tokenizer.encode(reply), renderer.stop_token_ids[0]]) for reply in replies]
