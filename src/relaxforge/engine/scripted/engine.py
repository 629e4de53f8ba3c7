"""The scripted engine: the port of every engine, with answers from rules instead of a model."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from relaxforge.core.errors import EngineError
from relaxforge.core.ports import Tokenizer, ignore_chunk
from relaxforge.core.turns import (
    Capabilities,
    Capacity,
    FinishReason,
    GenerateRequest,
    Generation,
    TokenChunk,
    VersionSpan,
    WeightUpdate,
    log_probs,
    token_ids,
)
from relaxforge.engine.limits import budget
from relaxforge.engine.scripted.rules import Rule
from relaxforge.engine.scripted.script import Answer, Script

NOTHING = Answer(token_ids(), log_probs(), FinishReason.ABORT)


@dataclass(slots=True)
class _Running:
    """A request whose rule takes time. ``news`` is set when it is aborted and when the engine pauses or resumes."""

    emitted: int = 0
    aborted: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptedEngine:
    """Answers each request by the first rule that matches it, in arrival order.

    Costs nothing that grows with the prompt: only ``prompt_ids[delta_start:]`` is looked at, and decoded only if a rule
    has a pattern. Time passes only where a rule says ``delay_s`` or ``tokens_per_s``. ``load`` reads no file; it
    changes the version that later tokens carry. Errors of the script: ``ConfigError``.
    """

    def __init__(
        self, rules: tuple[Rule, ...], tokenizer: Tokenizer, end_of_turn_id: int, *, vocab_size: int,
        max_context: int | None = None, seed: int = 0, weight_version: int = 0,
    ) -> None:  # fmt: skip
        self.capabilities = Capabilities(per_request_seed=False, cached_tokens=False, max_context=max_context)
        self._script = Script(rules, tokenizer, end_of_turn_id, vocab_size, seed)
        self._vocab_size = vocab_size
        self._version = weight_version
        self._running: dict[str, _Running] = {}
        self._paused = False
        self._closed = False

    async def start(self) -> None:
        """Nothing to start."""

    async def generate(self, request: GenerateRequest, emit: Callable[[TokenChunk], None] = ignore_chunk) -> Generation:
        if self._closed:
            raise EngineError(f"request {request.request_id}: the engine is closed")
        if request.request_id in self._running:
            raise EngineError(f"request {request.request_id}: another request of this id is running")
        delta = request.prompt_ids[request.delta_start :]
        limit = budget(request, delta, self._vocab_size, self.capabilities.max_context)
        rule, answer = self._script.choose(request, delta)
        if not (rule.delay_s or rule.tokens_per_s or self._paused):
            return self._at_once(request, self._script.cut(_raised(rule, answer), limit, request.sampling), emit)
        running = self._running[request.request_id] = _Running()
        try:
            await self._wait(running, rule.delay_s)
            whole = NOTHING if running.aborted else self._script.cut(_raised(rule, answer), limit, request.sampling)
            return await self._in_time(request, running, whole, rule.tokens_per_s, emit)
        finally:
            del self._running[request.request_id]

    async def abort(self, request_id: str) -> None:
        if running := self._running.get(request_id):
            running.aborted = True
            running.news.set()

    async def pause(self) -> None:
        self._turn(paused=True)

    async def resume(self) -> None:
        self._turn(paused=False)

    async def load(self, update: WeightUpdate) -> None:
        self._version = update.version

    async def capacity(self) -> Capacity:
        waiting = sum(1 for running in self._running.values() if not running.emitted) if self._paused else 0
        return Capacity(running=len(self._running) - waiting, waiting=waiting)

    async def lost(self) -> EngineError:
        """It has no process that could die."""
        never: asyncio.Future[EngineError] = asyncio.get_running_loop().create_future()
        return await never

    async def close(self) -> None:
        self._closed = True
        for request_id in tuple(self._running):
            await self.abort(request_id)

    def _turn(self, *, paused: bool) -> None:
        self._paused = paused
        for running in self._running.values():
            running.news.set()

    def _at_once(self, request: GenerateRequest, answer: Answer, emit: Callable[[TokenChunk], None]) -> Generation:
        if emit is not ignore_chunk:
            emit(TokenChunk(request.request_id, answer.ids[:], answer.logprobs[:], self._version))
        versions = (VersionSpan(self._version, 0, len(answer.ids)),)
        return Generation(answer.ids[:], answer.logprobs[:], versions, answer.finish, None, answer.stop_match)

    async def _in_time(
        self, request: GenerateRequest, running: _Running, answer: Answer, tokens_per_s: float | None,
        emit: Callable[[TokenChunk], None],
    ) -> Generation:  # fmt: skip
        versions: list[VersionSpan] = []
        size = len(answer.ids)
        while running.emitted < size:
            await self._wait(running, 1 / tokens_per_s if tokens_per_s else 0.0)
            if running.aborted:
                break
            start, end = running.emitted, running.emitted + 1 if tokens_per_s else size
            emit(TokenChunk(request.request_id, answer.ids[start:end], answer.logprobs[start:end], self._version))
            if versions and versions[-1].version == self._version:
                start = versions.pop().start
            versions.append(VersionSpan(self._version, start, end))
            running.emitted = end
        done, end = running.emitted == size, running.emitted
        finish = answer.finish if done else FinishReason.ABORT
        match = answer.stop_match if done else None
        return Generation(answer.ids[:end], answer.logprobs[:end], tuple(versions), finish, None, match)

    async def _wait(self, running: _Running, seconds: float) -> None:
        """Let ``seconds`` pass in which the engine is not paused; return early on abort."""
        clock = asyncio.get_running_loop().time
        while not running.aborted and (seconds > 0 or self._paused):
            began, paused = clock(), self._paused
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if paused else seconds):
                    await running.news.wait()
            running.news.clear()
            seconds -= 0.0 if paused else clock() - began


def _raised(rule: Rule, answer: Answer | None) -> Answer:
    if answer is None:
        raise EngineError(f"{rule.error} ({rule.where})")
    return answer
