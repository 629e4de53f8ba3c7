"""What is kept about every model request, refused ones included, and which ones repeat an earlier one."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from relaxforge.core.messages import Api, RetryHint
from relaxforge.core.turns import FinishReason, ModelTurn, Usage
from relaxforge.forest.drift import DriftNote
from relaxforge.forest.state import State

RetryPolicy = Literal["auto", "replay", "branch"]

NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(slots=True)
class RequestRecord:
    """One model request of a Session, as the dump shows it. Times are seconds since the Session began."""

    request_id: str
    api: Api
    arrived_s: float
    parent: State | None = None
    state: State | None = None
    http_status: int | None = None
    error: str | None = None
    new_messages: int = 0
    normalised: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    drift: tuple[DriftNote, ...] = ()
    delivered: bool | None = None
    retry_of: str | None = None
    held_s: float | None = None
    generation_s: float | None = None
    hosted_usage: Usage | None = None
    """As a provider counted; our own models' answers are counted from their State."""
    cached_tokens: int | None = None
    abandoned: bool = False
    """Whether its last client has gone and the generation was aborted for that."""

    def count(self, causes: Mapping[str, int]) -> None:
        """Add to ``normalised``."""
        if causes:
            self.normalised = Counter(self.normalised) + Counter(causes)

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """What the engine sampled for this request, by weight version; empty for replays and refused requests."""
        if self.state is None or self.retry_of is not None:
            return []
        aborted = self.state.finish is FinishReason.ABORT
        return [
            {"weight_version": span.version, "tokens": span.end - span.start, "aborted": aborted}
            for span in self.state.versions
        ]

    @property
    def usage(self) -> Usage | None:
        """What the answer cost; ``None`` without one, and for a repetition of an earlier one."""
        if self.hosted_usage is not None or self.state is None or self.retry_of is not None:
            return self.hosted_usage
        sampled = len(self.state.tokens)
        return Usage(self.state.length - sampled, sampled, self.cached_tokens)

    @property
    def timing(self) -> dict[str, float]:
        """Seconds: when the request arrived, how long it was held, how long the engine took."""
        times = {"arrived_s": self.arrived_s, "held_s": self.held_s, "generation_s": self.generation_s}
        return {name: value for name, value in times.items() if value is not None}


@dataclass(slots=True, eq=False)
class Served:
    """A request whose answer is under way or recorded.

    ``retries`` counts the requests that were given it again; ``left``: its client hung up while it was under way.
    """

    record: RequestRecord
    hint: RetryHint
    serving: asyncio.Task[ModelTurn] | None
    turn: ModelTurn | None = None
    retries: int = 0
    left: bool = False

    def __post_init__(self) -> None:
        if self.serving is not None:
            self.serving.add_done_callback(self._settle)

    async def answer(self) -> ModelTurn:
        """The answer, once there is one. Errors: those of the request."""
        if self.turn is not None:
            return self.turn
        assert self.serving is not None  # noqa: S101  (for the type checker: one of the two is always there)
        return await asyncio.shield(self.serving)

    @property
    def in_flight(self) -> bool:
        return self.turn is None and self.serving is not None and not self.serving.done()

    @property
    def usable(self) -> bool:
        """In flight, or answered without an error; not cut short because its client had gone."""
        return not self.record.abandoned and (self.in_flight or self.turn is not None)

    @property
    def continued(self) -> bool:
        """Whether a later request builds on the answer, so that its client must have read it."""
        return self.record.state is not None and bool(self.record.state.children)

    def _settle(self, serving: asyncio.Task[ModelTurn]) -> None:
        """Keep the answer alone: a task holds on to much more, and a Session may have thousands."""
        if not serving.cancelled() and serving.exception() is None:
            self.turn, self.serving = serving.result(), None

    @property
    def lost(self) -> bool:
        """Its client is gone without the answer, and none that repeated the request has read it either."""
        state = self.record.state
        return (self.left or self.record.delivered is False) and not (state is not None and state.delivered)


class RetryBook:
    """Tells a retry from repeated sampling.

    An equal body is a retry only if the client marks it (``x-stainless-retry-count`` >= 1, or an equal
    ``Idempotency-Key``), or if the earlier client hung up before its answer was written completely.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._by_body: dict[bytes, list[Served]] = {}
        self._by_key: dict[str, Served] = {}
        self._order: deque[Served] = deque()

    def note(self, served: Served) -> None:
        """Remember a request; forget the oldest whose answers were built upon, unless every repetition is a replay."""
        while self._policy != "replay" and self._order and self._order[0].continued:
            self._forget(self._order.popleft())
        self._order.append(served)
        self._by_body.setdefault(served.hint.body, []).append(served)
        if served.hint.idempotency_key is not None:
            self._by_key[served.hint.idempotency_key] = served

    def _forget(self, served: Served) -> None:
        equal = self._by_body[served.hint.body]
        equal.remove(served)
        if not equal:
            del self._by_body[served.hint.body]
        if self._by_key.get(served.hint.idempotency_key or "") is served:
            del self._by_key[served.hint.idempotency_key or ""]

    def earlier(self, hint: RetryHint) -> Served | None:
        """The request that ``hint`` repeats, if its answer can still be given; ``None`` for a new request."""
        found = None if self._policy == "branch" else self._find(hint)
        if found is not None:
            found.retries += 1
        return found

    def _find(self, hint: RetryHint) -> Served | None:
        same_key = self._by_key.get(hint.idempotency_key) if hint.idempotency_key is not None else None
        if same_key is not None and same_key.hint.body == hint.body:
            return same_key if same_key.usable else None
        marked = hint.retry_count >= 1 or self._policy == "replay"
        equal = [served for served in self._by_body.get(hint.body, ()) if served.usable and (marked or served.lost)]
        return max(reversed(equal), key=_likeliest, default=None)


def _likeliest(served: Served) -> tuple[bool, bool, int]:
    """Of several equal requests (best of n), the one whose client most probably gave up; each gets its own retry."""
    return served.lost, served.in_flight, -served.retries
