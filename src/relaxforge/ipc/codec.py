"""Values as MessagePack: dataclasses become maps, arrays of ids and logprobs become bytes.

``array('i')`` and ``array('f')`` travel as extension types 1 and 2 (native byte order: both ends are one machine).
"""

from __future__ import annotations

from array import array
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_CODES = {"i": 1, "f": 2}
_TYPECODES: dict[int, str] = {code: typecode for typecode, code in _CODES.items()}


def _encode_other(value: Any) -> Any:
    if isinstance(value, array):
        return msgspec.msgpack.Ext(_CODES[value.typecode], value.tobytes())
    raise TypeError(f"{type(value).__name__} cannot cross a process boundary")


def _decode_ext(code: int, data: memoryview) -> array[Any]:
    values: array[Any] = array(_TYPECODES[code])
    values.frombytes(data)
    return values


def _convert_other(kind: Any, value: Any) -> Any:
    if kind is array and isinstance(value, array):
        return value
    raise TypeError(f"{type(value).__name__} is not a {kind}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_other)
_decoder = msgspec.msgpack.Decoder(ext_hook=_decode_ext)


def encode(value: Any) -> bytes:
    """MessagePack bytes of builtins, frozen dataclasses, msgspec Structs and arrays."""
    return _encoder.encode(value)


def decode(data: bytes | bytearray | memoryview) -> Any:
    """The inverse of ``encode`` in builtins and arrays; shape it with ``shape``."""
    return _decoder.decode(data)


def shape(value: Any, kind: type[T]) -> T:
    """A decoded value as an instance of ``kind``. Errors: ``msgspec.ValidationError`` naming the path."""
    return msgspec.convert(value, kind, dec_hook=_convert_other)
