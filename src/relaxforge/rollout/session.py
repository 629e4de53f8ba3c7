"""Session: one agent's conversations with the model, whoever answers: a model of ours, or a hosted one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from relaxforge.core.errors import EngineError, ImageError, RelaxForgeError, RenderError, RequestError
from relaxforge.core.ids import Credential
from relaxforge.core.messages import Api, Message, ModelRequest, Tool
from relaxforge.core.sessions import Failure, FailureCategory, Mode, Task
from relaxforge.core.turns import ModelTurn, Sampling, TextPiece
from relaxforge.forest.forest import PendingTurn, SessionForest
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


class Session(ABC):
    """Serves one agent's model requests, holds them until the Group's lease, records every conversation.

    ``known``, ``known_tools`` and ``known_fields`` are the gateway's memory, see ``core.ports.SessionDoor``.
    """

    def __init__(
        self,
        identity: SessionIdentity,
        limits: SessionLimits,
        sampling: Sampling,
        *,
        strict_history: bool = False,
        retry_policy: RetryPolicy = "auto",
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
        self._retries = RetryBook(retry_policy)
        self._born = time.monotonic()
        self._sealed = False
        self._serving: dict[str, asyncio.Task[ModelTurn]] = {}
        self._clients: dict[int, Served] = {}

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
            await self._abort(served.record.request_id)

    @abstractmethod
    async def count(self, request: ModelRequest) -> int:
        """Tokens of the prompt that ``request`` would give. Errors: ``RequestError``."""

    @abstractmethod
    async def _answer(
        self, request: ModelRequest, record: RequestRecord, said: Callable[[TextPiece], None] | None, /
    ) -> ModelTurn:
        """The whole path of a model request, from ``_placed`` to the commit. Errors: any ``RelaxForgeError``."""

    @abstractmethod
    async def _abort(self, request_id: str) -> None:
        """End the generation for a request; ``_answer`` commits what there is. Errors: ``EngineError``."""

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
                await self._abort(request_id)
        await asyncio.gather(*self._serving.values(), return_exceptions=True)

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

    async def _placed(self, request: ModelRequest, record: RequestRecord) -> PendingTurn:
        """Wait for the lease, then find where the conversation goes on."""
        await self._held(record)
        pending = self.forest.begin(request)
        record.parent, record.drift = pending.parent, pending.drift
        record.new_messages = len(request.messages) - pending.split
        record.count(pending.leniency)
        return pending

    async def _held(self, record: RequestRecord) -> None:
        started = time.monotonic()
        await self.lease.wait()
        record.held_s = time.monotonic() - started
        self._require_wanted(record)

    def _require_wanted(self, record: RequestRecord) -> None:
        """To ask after every wait before the generation, which alone can be aborted. Errors: ``RequestError``."""
        if self._sealed:
            raise discarded(self.session_id)
        if record.abandoned:
            raise gone(record)

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


def gone(record: RequestRecord) -> RequestError:
    return RequestError(
        f"request {record.request_id}: the client hung up before the first token", status=499, code="client_closed"
    )


def _fail(record: RequestRecord, error: Exception) -> None:
    record.http_status = error.status if isinstance(error, RequestError) else 500
    record.error = str(error)


def _retrieve(task: asyncio.Task[ModelTurn]) -> None:
    """Look at the outcome of a request whose client has gone; its record already holds the error."""
    if not task.cancelled():
        task.exception()
