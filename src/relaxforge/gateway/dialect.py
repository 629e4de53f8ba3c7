"""What one API spelling must offer. A dialect is one file and one object; the route picks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Api, ModelRequest, RetryHint
from relaxforge.core.ports import SessionDoor
from relaxforge.core.turns import ModelTurn
from relaxforge.gateway.live import Live

Headers = Mapping[bytes, bytes]
"""Request headers, names in lower case; the last one wins."""


class Dialect(Protocol):
    """Bytes to a canonical request, and a committed answer or an error back to bytes of the same API."""

    @property
    def api(self) -> Api: ...

    def read(self, body: bytes, headers: Headers, door: SessionDoor) -> ModelRequest:
        """Errors: ``RequestError`` naming the offending field."""
        ...

    def write(self, request: ModelRequest, turn: ModelTurn) -> bytes:
        """The answer as one JSON object."""
        ...

    def error(self, error: RequestError) -> bytes: ...

    @property
    def heartbeat(self) -> bytes:
        """The frame that opens a stream and keeps it alive; clients make nothing of it."""
        ...

    def live(self, request: ModelRequest) -> Live:
        """The answer as server-sent events."""
        ...

    def failure(self, request: ModelRequest, error: RequestError, /) -> bytes:
        """How a stream that has begun ends in place of an answer."""
        ...


def retry_hint(headers: Headers, body: bytes) -> RetryHint:
    """What the official clients say about a repetition, next to the digest of the ``body``."""
    count = headers.get(b"x-stainless-retry-count", b"")
    key = headers.get(b"idempotency-key")
    return RetryHint(
        body, int(count) if count.isdigit() and len(count) < 10 else 0, key.decode("latin-1") if key else None
    )
