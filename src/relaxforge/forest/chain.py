"""Chained digests: the identity of every prefix of a conversation in one pass over what is new."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from relaxforge.core.messages import DIGEST_BYTES, Message


def link(parent: bytes, message_digest: bytes) -> bytes:
    """Digest of a conversation that continues ``parent`` with one message."""
    return blake2b(parent + message_digest, digest_size=DIGEST_BYTES).digest()


def extend(parent: bytes, digests: Iterable[bytes]) -> list[bytes]:
    """The digests of ``parent`` continued by one, two, ... messages."""
    chain = []
    for message_digest in digests:
        parent = link(parent, message_digest)
        chain.append(parent)
    return chain


class ChainMemory:
    """The chain of the last request, so that a request which continues it pays for its new messages only.

    Unchanged messages are the same objects (the gateway recognises their raw bytes), hence identity comparison.
    """

    def __init__(self) -> None:
        self._start = b""
        self._messages: tuple[Message, ...] = ()
        self._chain: list[bytes] = []

    def chain(self, start: bytes, messages: tuple[Message, ...]) -> list[bytes]:
        """``chain[n]`` is the digest of the first n messages; ``chain[0]`` is ``start``."""
        kept = self._common(messages) if start == self._start and self._chain else 0
        chain = self._chain[: kept + 1] if kept else [start]
        chain += extend(chain[-1], [message.exact for message in messages[kept:]])
        self._start, self._messages, self._chain = start, messages, chain
        return chain

    def _common(self, messages: tuple[Message, ...]) -> int:
        if messages[: len(self._messages)] == self._messages:  # The usual case, at the speed of comparing pointers.
            return len(self._messages)
        count = 0
        for known, message in zip(self._messages, messages, strict=False):
            if known is not message:
                break
            count += 1
        return count
