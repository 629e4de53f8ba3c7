"""One frame: a 4-byte little-endian length, then a MessagePack list ``[kind, number, method, body]``.

Kinds: ``call`` (main asks), ``reply`` and ``error`` (answer to a call, same number), ``event`` (news about a call that
is still running), ``notice`` (main tells, no answer).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from relaxforge.ipc.codec import decode, encode

Kind = Literal["call", "reply", "error", "event", "notice"]
HEADER = 4


class Frame(NamedTuple):
    kind: Kind
    number: int
    method: str
    body: Any


def pack(frame: Frame) -> bytes:
    payload = encode(list(frame))
    return len(payload).to_bytes(HEADER, "little") + payload


def unpack(payload: bytes | bytearray | memoryview) -> Frame:
    return Frame(*decode(payload))
