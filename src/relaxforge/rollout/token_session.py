"""A Session whose model is ours: every Turn is tokens. ``_answer`` is the whole path of a model request."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b

from relaxforge.core.errors import EngineError, RelaxForgeError, RenderError, RequestError, TooManyTokensError
from relaxforge.core.messages import Message, ModelRequest
from relaxforge.core.ports import Engine, ignore_chunk
from relaxforge.core.turns import (
    FinishReason,
    GenerateRequest,
    Generation,
    ModelTurn,
    Observation,
    Sampling,
    TextPiece,
    TokenChunk,
    TokenLogprob,
    TurnFinish,
    Usage,
)
from relaxforge.forest.forest import PendingTurn
from relaxforge.render.renderer import Renderer
from relaxforge.rollout.requests import RequestRecord, RetryPolicy
from relaxforge.rollout.session import Session, SessionIdentity, SessionLimits, discarded, gone

LONG = 8192
"""Characters that take longer to tokenise (4 to 10 ms) than others should wait; a thread then does it."""


class TokenSession(Session):
    """Answers from an engine and keeps exactly what it sampled. ``check_every``: compare every n-th Turn's prompt."""

    def __init__(
        self,
        identity: SessionIdentity,
        limits: SessionLimits,
        sampling: Sampling,
        *,
        engine: Engine,
        renderer: Renderer,
        strict_history: bool = False,
        retry_policy: RetryPolicy = "auto",
        check_every: int = 0,
    ) -> None:
        super().__init__(identity, limits, sampling, strict_history=strict_history, retry_policy=retry_policy)
        self._engine = engine
        self._renderer = renderer
        self._check_every = check_every
        self._comparisons: list[asyncio.Task[dict[str, int]]] = []
        self._in_order = asyncio.Lock()

    async def count(self, request: ModelRequest) -> int:
        """Tokens of the prompt that ``request`` would give. Errors: ``RequestError``."""
        pending = self.forest.begin(request)
        try:
            observation = await self._observed(pending)
            return pending.parent.length + len(observation.ids)
        except RenderError as error:
            raise self._as_request_error(error) from error

    async def seal(self) -> None:
        """As every Session; comparisons under way are waited for."""
        await super().seal()
        await asyncio.gather(*self._comparisons)

    async def _abort(self, request_id: str) -> None:
        await self._engine.abort(request_id)

    async def _answer(
        self, request: ModelRequest, record: RequestRecord, said: Callable[[TextPiece], None] | None
    ) -> ModelTurn:
        pending = await self._placed(request, record)
        observation = await self._observed(pending)
        self._require_wanted(record)
        record.count(observation.normalised)
        prompt = pending.parent.lineage_ids()
        prompt.extend(observation.ids)
        sampling = self._sampling_for(request, len(prompt), record.request_id)
        delta_start = pending.parent.length
        tools, tail = request.tools if request.may_call else (), observation.ids[-64:]
        emit: Callable[[TokenChunk], None] = ignore_chunk
        if said is not None:
            emit = self._renderer.live(said, tools=tools, prompt_tail=tail, stops=sampling.stop, prompt=len(prompt))
        generation = await self._generate(prompt, delta_start, sampling, record, emit)
        if not generation.ids:
            raise self._empty(generation, record)
        parsed = self._renderer.parse(
            generation.ids,
            tools=tools,
            prompt_tail=tail,
            stop_match=generation.stop_match,
            salt=pending.names[0],
        )
        if parsed.malformed is not None:
            record.count({f"malformed_{parsed.malformed}": 1})
        record.state = self.forest.commit(pending, observation, generation, parsed.message, record.request_id)
        record.cached_tokens = generation.cached_tokens
        self.known[parsed.message.exact] = parsed.message  # Its echo becomes this object, not a second one.
        if self._sealed:
            raise discarded(self.session_id)
        self._check_render(pending, observation)
        return self._turn(request, record, parsed.message, generation, len(prompt))

    async def _observed(self, pending: PendingTurn) -> Observation:
        """A long text is tokenised off the event loop, and no later request of the Session overtakes it."""
        async with self._in_order:
            if pending.observation is None and _characters(pending) > LONG:
                return await asyncio.to_thread(self._observe, pending)
            return self._observe(pending)

    def _observe(self, pending: PendingTurn) -> Observation:
        if pending.observation is not None:
            return Observation(pending.observation.tokens)
        most = self.limits.context
        try:
            if not pending.parent.is_response:
                return self._renderer.open(pending.request, most)
            return self._renderer.extend(pending.request, pending.split, pending.parent.tokens, most)
        except TooManyTokensError as error:
            raise self._too_long(f"at least {pending.parent.length + error.least}") from error

    def _too_long(self, tokens: str) -> RequestError:
        return RequestError(
            f"Session {self.session_id}: the conversation has {tokens} tokens and the context limit is "
            f"{self.limits.context}, answer included. Shorten tool output, or raise --rollout-max-context-len",
            code="context_length_exceeded",
            param="messages",
        )

    def _sampling_for(self, request: ModelRequest, prompt_tokens: int, request_id: str) -> Sampling:
        wanted = min(request.max_tokens or self.limits.response, self.limits.response)
        if self.limits.context is not None:
            room = self.limits.context - prompt_tokens
            if room <= 0:
                raise self._too_long(str(prompt_tokens))
            wanted = min(wanted, room)
        # The id without the Session's, which changes with every incarnation of a run.
        number = request_id.removeprefix(self.session_id)
        seed = request.seed if request.seed is not None else _derive(self.identity.seed, number)
        return replace(
            self._sampling,
            max_tokens=wanted,
            stop=request.stop or self._sampling.stop,
            stop_token_ids=self._renderer.stop_token_ids,
            seed=seed if self._engine.capabilities.per_request_seed else None,
        )

    async def _generate(
        self,
        prompt: array[int],
        delta_start: int,
        sampling: Sampling,
        record: RequestRecord,
        emit: Callable[[TokenChunk], None],
    ) -> Generation:
        started = time.monotonic()
        request = GenerateRequest(self.session_id, record.request_id, prompt, delta_start, sampling)
        try:
            return await self._engine.generate(request, emit)
        finally:
            record.generation_s = time.monotonic() - started

    def _empty(self, generation: Generation, record: RequestRecord) -> RelaxForgeError:
        """There is nothing to keep: we aborted before the first token, or the engine broke its promise."""
        if self._sealed:
            return discarded(self.session_id)
        if record.abandoned:
            return gone(record)
        return EngineError(
            f"request {record.request_id}: the engine returned no token at all (finish reason {generation.finish})"
        )

    def _check_render(self, pending: PendingTurn, observation: Observation) -> None:
        """Every n-th Turn, compare with a full render; after the answer was given, not before."""
        if not self._check_every or len(self.records) % self._check_every or not pending.parent.is_response:
            return
        request, split, served = pending.request, pending.split, pending.parent.tokens
        comparing = asyncio.create_task(
            asyncio.to_thread(self._renderer.compare, request, split, served, observation), name="compare-render"
        )
        comparing.add_done_callback(lambda task: self.notices.update(task.result()))
        self._comparisons.append(comparing)

    def _turn(
        self, request: ModelRequest, record: RequestRecord, message: Message, generation: Generation, prompt_tokens: int
    ) -> ModelTurn:
        finish: TurnFinish = "length" if generation.finish is FinishReason.LENGTH else "stop"
        if message.tool_calls and finish == "stop":
            finish = "tool_calls"
        return ModelTurn(
            record.request_id,
            message,
            finish,
            Usage(prompt_tokens, len(generation.ids), generation.cached_tokens),
            self._logprobs(generation) if request.logprobs else None,
            generation.stop_match,
        )

    def _logprobs(self, generation: Generation) -> tuple[TokenLogprob, ...]:
        text, raw = self._renderer.token_text, self._renderer.token_bytes
        pairs = zip(generation.ids, generation.logprobs, strict=True)
        return tuple(TokenLogprob(text(token), logprob, raw(token)) for token, logprob in pairs)


def _characters(pending: PendingTurn) -> int:
    """How long the text is that is to be tokenised, roughly: what the template adds is not counted."""
    request = pending.request
    if pending.parent.is_response:
        return sum(len(message.text) for message in request.messages[pending.split :])
    tools = sum(len(tool.parameters) for tool in request.tools)
    return tools + sum(len(message.text) for message in request.messages)


def _derive(seed: int, number: str) -> int:
    """A seed per request: repeatable for a Session's n-th request, different for every other."""
    return int.from_bytes(blake2b(f"{seed}/{number}".encode(), digest_size=4).digest(), "little")
