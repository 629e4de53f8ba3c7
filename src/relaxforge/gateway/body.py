"""The top level of a request body: scanned once, each field parsed only when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from relaxforge.core import strict_json
from relaxforge.core.errors import RequestError
from relaxforge.core.messages import digest

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_NULL = msgspec.Raw(b"null")

_INT64 = range(-(2**63), 2**63)
_MAX_STOPS = 16


class Body:
    """Field access with the API's own words for what is wrong. ``null`` counts as absent everywhere."""

    def __init__(self, raw: Mapping[str, msgspec.Raw]) -> None:
        self.raw = raw

    @classmethod
    def parse(cls, body: bytes) -> Body:
        """Errors: ``RequestError`` 400 when this is not a JSON object in UTF-8."""
        try:
            if not body.isascii():
                body.decode()
            return cls(_scan(body))
        except UnicodeDecodeError as error:
            raise RequestError(f"the body is not valid UTF-8 (byte {error.start})") from None
        except RecursionError:
            raise RequestError(f"the body is nested deeper than {strict_json.MAX_DEPTH} levels") from None
        except msgspec.ValidationError as error:
            raise RequestError(f"the body must be a JSON object: {error}") from None
        except msgspec.DecodeError as error:
            raise RequestError(f"the body is not valid JSON: {error}") from None

    def value(self, name: str) -> Any:
        raw = self.raw.get(name, _NULL)
        return None if raw == _NULL else parse_value(raw, name)

    def items(self, name: str) -> list[msgspec.Raw]:
        """The unparsed elements of a required list, at least one."""
        try:
            found = _ARRAY.decode(self.raw.get(name, _NULL))
        except msgspec.ValidationError:
            found = []
        if not found:
            raise RequestError(f"{name} must be a list with at least one element", param=name)
        return found

    def text(self, name: str) -> str | None:
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise RequestError(f"{name} must be a string, got {kind(value)}", param=name)
        return value

    def flag(self, name: str) -> bool:
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise RequestError(f"{name} must be true or false, got {kind(value)}", param=name)
        return bool(value)

    def integer(self, name: str) -> int | None:
        value = self.value(name)
        if value is None or (type(value) is int and value in _INT64):
            return value
        raise RequestError(f"{name} must be an integer of 64 bits, got {_shown(value)}", param=name)

    def positive(self, name: str) -> int | None:
        value = self.integer(name)
        if value is not None and value < 1:
            raise RequestError(f"{name} must be a positive integer, got {value}", param=name)
        return value

    def stops(self, name: str) -> tuple[str, ...]:
        """Stop strings: one string, or a list of up to 16."""
        value = self.value(name)
        texts = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
            raise RequestError(f"{name} must be a non-empty string, or a list of them", param=name)
        if len(texts) > _MAX_STOPS:
            raise RequestError(f"{name} takes at most {_MAX_STOPS} strings, got {len(texts)}", param=name)
        return tuple(texts)

    def ignored(self, read: frozenset[str]) -> set[str]:
        """Names of fields outside ``read`` that carry a value."""
        return {name for name in self.raw.keys() - read if self.raw[name] != _NULL}

    def digest(self, history: str, keys: bytes) -> bytes:
        """Identity of the whole body; ``keys`` stands for the field ``history``, whose elements are hashed already."""
        parts = [part for name, raw in self.raw.items() if name != history for part in (name.encode(), raw)]
        return digest(keys, *parts)


def _scan(body: bytes) -> dict[str, msgspec.Raw]:
    """The fields of an object. Lone surrogates are the one thing that a strict scan refuses and we do not."""
    try:
        return _OBJECT.decode(body)
    except msgspec.DecodeError:
        repaired = strict_json.replace_lone_surrogates(body)
        if repaired == body:
            raise
        return _OBJECT.decode(repaired)


def parse_value(raw: bytes, where: str) -> Any:
    """The value of one field or element. Errors: ``RequestError`` 400 naming ``where``."""
    try:
        return strict_json.loads(bytes(raw))
    except ValueError as error:
        raise RequestError(f"{where}: {error}", param=where) from None


def kind(value: Any) -> str:
    """What JSON calls this value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _shown(value: Any) -> str:
    return str(value) if type(value) in (int, float) and len(str(value)) < 40 else kind(value)
