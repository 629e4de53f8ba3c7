"""Session: one agent's conversations with the model. ``_answer`` is the whole path of a model request."""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

from relaxforge.core.errors import (
    EngineError,
    ImageError,
    RelaxForgeError,
    RenderError,
    RequestError,
    TooManyTokensError,
)
from relaxforge.core.ids import Credential
from relaxforge.core.messages import Api, Message, ModelRequest, Tool
from relaxforge.core.ports import Engine, ignore_chunk
from relaxforge.core.sessions import Failure, FailureCategory, Mode, Task
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
from relaxforge.forest.forest import PendingTurn, SessionForest
from relaxforge.render.renderer import Renderer
from relaxforge.rollout.clock import ActiveClock
from relaxforge.rollout.requests import RequestRecord, RetryBook, RetryPolicy, Served


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Budgets of one Session. ``context`` and ``response`` count tokens, the times are seconds."""

    context: int | None
    response: int
    active_s: float
    startup_s: float | None


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """Who a Session is: its key, its Group, its Task and the seed its sampling is derived from."""

    credential: Credential
    group_id: str
    mode: Mode
    task: Task
    seed: int

    @property
    def session_id(self) -> str:
        return self.credential.session_id


class Session:
    """Serves one agent's model requests, holds them until the Group's lease, records every token.

    ``known``, ``known_tools`` and ``known_fields`` are the gateway's memory, see ``core.ports.SessionDoor``.
    """

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
        self.identity = identity
        self.limits = limits
        self.known: dict[bytes, Message | tuple[Message, ...]] = {}
        self.known_tools: dict[bytes, tuple[Tool, ...]] = {}
        self.known_fields: set[str] = set()
        self.forest = SessionForest(strict=strict_history)
        self.clock = ActiveClock(limits.active_s)
        self.first_request = asyncio.Event()
        self.lease = asyncio.Event()
        self.records: list[RequestRecord] = []
        self.fault: Failure | None = None
        self.notices: Counter[str] = Counter()
        self._sampling = sampling
        self._engine = engine
        self._renderer = renderer
        self._retries = RetryBook(retry_policy)
        self._check_every = check_every
        self._born = time.monotonic()
        self._sealed = False
        self._serving: dict[str, asyncio.Task[ModelTurn]] = {}
        self._clients: dict[int, Served] = {}
        self._comparisons: list[asyncio.Task[dict[str, int]]] = []

    @property
    def session_id(self) -> str:
        return self.identity.session_id

    async def turn(self, request: ModelRequest, said: Callable[[TextPiece], None] | None = None) -> ModelTurn:
        """Answer one request; only ``lost`` ends it early. Errors: ``RequestError``."""
        if self._sealed:
            raise discarded(self.session_id)
        record = self._record(request.api)
        record.count(request.normalised)
        self.first_request.set()
        earlier = self._retries.earlier(request.retry)
        self._clients[id(request)] = served = earlier or self._begin(request, record, said)
        try:
            if earlier is None:
                return await served.answer()
            record.retry_of = earlier.record.request_id
            return await self._replay(record, earlier)
        finally:
            self._clients.pop(id(request), None)

    def _begin(self, request: ModelRequest, record: RequestRecord, said: Callable[[TextPiece], None] | None) -> Served:
        serving = asyncio.create_task(self._serve(request, record, said), name=record.request_id)
        serving.add_done_callback(_retrieve)
        self._serving[record.request_id] = serving
        served = Served(record, request.retry, serving)
        self._retries.note(served)
        return served

    def left(self, request: ModelRequest) -> None:
        """The client of ``request`` has hung up: an equal request from now on is its retry, marked or not."""
        if (served := self._clients.get(id(request))) is not None:
            served.left = True

    async def lost(self, request: ModelRequest) -> None:
        """The client of ``request`` has gone for good: abort, unless another one waits for the same generation."""
        served = self._clients.pop(id(request), None)
        if served is None or not served.in_flight or served in self._clients.values():
            return
        served.record.abandoned = True
        with contextlib.suppress(EngineError):  # The request itself ends with the same error, and is recorded.
            await self._engine.abort(served.record.request_id)

    def count(self, request: ModelRequest) -> int:
        """Tokens of the prompt that ``request`` would give. Errors: ``RequestError``."""
        pending = self.forest.begin(request)
        try:
            return pending.parent.length + len(self._observe(pending).ids)
        except RenderError as error:
            raise self._as_request_error(error) from error

    def refused(self, request_api: Api, error: Exception) -> None:
        """Keep a request that never became one, with its error."""
        self.first_request.set()
        record = self._record(request_api)
        _fail(record, error)

    def delivered(self, request_id: str, complete: bool) -> None:
        """Mark the answer as read by its client, or as lost on the way."""
        record = self.records[int(request_id.rpartition("-r")[2])]
        record.delivered = complete or bool(record.delivered)
        if complete and record.state is not None:
            self.forest.deliver(record.state)

    def open_gate(self) -> None:
        """The Group has its lease: held requests go on and active time starts, unless the Session is over already."""
        if self._sealed:
            return
        self.clock.run()
        self.lease.set()

    async def seal(self) -> None:
        """Refuse new requests, abort those under way, and wait until what they sampled is committed."""
        self._sealed = True
        self.clock.pause()
        self.lease.set()
        for request_id in list(self._serving):
            with contextlib.suppress(EngineError):  # The request itself ends with the same error, and is recorded.
                await self._engine.abort(request_id)
        await asyncio.gather(*self._serving.values(), return_exceptions=True)
        await asyncio.gather(*self._comparisons)

    async def _replay(self, record: RequestRecord, earlier: Served) -> ModelTurn:
        try:
            turn = await earlier.answer()
        except RequestError as error:
            _fail(record, error)
            raise
        record.state, record.http_status = earlier.record.state, 200
        return replace(turn, request_id=record.request_id, replayed=True)

    async def _serve(
        self, request: ModelRequest, record: RequestRecord, said: Callable[[TextPiece], None] | None
    ) -> ModelTurn:
        try:
            turn = await self._answer(request, record, said)
        except RelaxForgeError as error:
            answered = self._as_request_error(error)
            _fail(record, answered)
            raise answered from error
        else:
            self.fault = None  # It has got over what happened before; the records keep it.
            record.http_status = 200
            return turn
        finally:
            self._serving.pop(record.request_id, None)

    async def _answer(
        self, request: ModelRequest, record: RequestRecord, said: Callable[[TextPiece], None] | None
    ) -> ModelTurn:
        await self._held(record)
        pending = self.forest.begin(request)
        record.parent, record.drift = pending.parent, pending.drift
        record.new_messages = len(request.messages) - pending.split
        record.count(pending.leniency)
        observation = self._observe(pending)
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
        self.known[parsed.message.exact] = parsed.message  # Its echo becomes this object, not a second one.
        if self._sealed:
            raise discarded(self.session_id)
        self._check_render(pending, observation)
        return self._turn(request, record, parsed.message, generation, len(prompt))

    async def _held(self, record: RequestRecord) -> None:
        started = time.monotonic()
        await self.lease.wait()
        record.held_s = time.monotonic() - started
        if self._sealed:
            raise discarded(self.session_id)
        if record.abandoned:
            raise _gone(record)

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
            return _gone(record)
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

    def _as_request_error(self, error: RelaxForgeError) -> RequestError:
        if isinstance(error, RequestError):
            return error
        if isinstance(error, ImageError):
            return RequestError(str(error), code="image_unsupported", param=error.where or "messages")
        if isinstance(error, RenderError):
            return RequestError(str(error), code="template_refused", param="messages")
        if isinstance(error, EngineError):
            self.fault = self.fault or Failure(FailureCategory.PROVIDER_ERROR, str(error))
        return RequestError(str(error), status=500, code="internal_error")

    def _record(self, api: Api) -> RequestRecord:
        number = len(self.records)
        record = RequestRecord(f"{self.session_id}-r{number:04d}", api, time.monotonic() - self._born)
        self.records.append(record)
        return record


def discarded(session_id: str) -> RequestError:
    """The answer to any request of a Session that has ended."""
    return RequestError(
        f"Session {session_id} has ended; its model API is closed", status=404, code="session_discarded"
    )


def _gone(record: RequestRecord) -> RequestError:
    return RequestError(
        f"request {record.request_id}: the client hung up before the first token", status=499, code="client_closed"
    )


def _fail(record: RequestRecord, error: Exception) -> None:
    record.http_status = error.status if isinstance(error, RequestError) else 500
    record.error = str(error)


def _derive(seed: int, number: str) -> int:
    """A seed per request: repeatable for a Session's n-th request, different for every other."""
    return int.from_bytes(blake2b(f"{seed}/{number}".encode(), digest_size=4).digest(), "little")


def _retrieve(task: asyncio.Task[ModelTurn]) -> None:
    """Look at the outcome of a request whose client has gone; its record already holds the error."""
    if not task.cancelled():
        task.exception()
