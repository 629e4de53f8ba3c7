"""What is kept about every model request, refused ones included, and which ones repeat an earlier one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from relaxforge.core.messages import Api, RetryHint
from relaxforge.core.turns import ModelTurn
from relaxforge.forest.drift import DriftNote
from relaxforge.forest.state import State

RetryPolicy = Literal["auto", "replay", "branch"]


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
    normalised: dict[str, int] = field(default_factory=dict)
    drift: tuple[DriftNote, ...] = ()
    delivered: bool | None = None
    retry_of: str | None = None
    attempts: list[dict[str, Any]] = field(default_factory=list)
    timing: dict[str, float] = field(default_factory=dict)

    def count(self, causes: Mapping[str, int]) -> None:
        for cause, number in causes.items():
            self.normalised[cause] = self.normalised.get(cause, 0) + number


@dataclass(slots=True)
class Served:
    """A request whose answer is under way or recorded."""

    record: RequestRecord
    hint: RetryHint
    answer: asyncio.Task[ModelTurn]


class RetryBook:
    """Tells a retry from repeated sampling.

    An equal body is a retry only if the client marks it (``x-stainless-retry-count`` >= 1, or an equal
    ``Idempotency-Key``), or if the earlier answer was not written to its client completely.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._by_body: dict[bytes, Served] = {}
        self._by_key: dict[str, Served] = {}

    def note(self, served: Served) -> None:
        self._by_body[served.hint.body] = served
        if served.hint.idempotency_key is not None:
            self._by_key[served.hint.idempotency_key] = served

    def earlier(self, hint: RetryHint) -> Served | None:
        """The request that ``hint`` repeats, if its answer can still be given; ``None`` for a new request."""
        if self._policy == "branch":
            return None
        same_key = self._by_key.get(hint.idempotency_key) if hint.idempotency_key is not None else None
        if same_key is not None and same_key.hint.body == hint.body:
            return same_key if _usable(same_key) else None
        served = self._by_body.get(hint.body)
        if served is None or not _usable(served):
            return None
        marked = hint.retry_count >= 1 or self._policy == "replay"
        return served if marked or served.record.delivered is False else None


def _usable(served: Served) -> bool:
    """In flight, or answered without an error."""
    return not served.answer.done() or (not served.answer.cancelled() and served.answer.exception() is None)
