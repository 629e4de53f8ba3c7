"""JSON as every door reads it: strict where a value could not be kept exactly, tolerant where clients differ.

Duplicate keys take the last, integers of any size are exact, an escaped lone surrogate becomes U+FFFD. NaN, Infinity,
numbers beyond a double and nesting deeper than ``MAX_DEPTH`` are refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

MAX_DEPTH = 200

REPLACEMENT = rb"\uFffD"
"""U+FFFD in a spelling that no encoder emits, so that replacements can still be counted later."""

_ESCAPES = re.compile(
    rb"\\\\"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def loads(text: str | bytes) -> Any:
    """The value of a JSON text. Errors: ``ValueError`` saying what is wrong with it."""
    raw = text.encode() if isinstance(text, str) else text
    try:
        value = _DECODER.decode(replace_lone_surrogates(raw).decode())
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise ValueError(_TOO_DEEP)
    return value


def replace_lone_surrogates(raw: bytes) -> bytes:
    """JSON bytes with every escaped surrogate that has no partner spelled ``REPLACEMENT`` instead."""
    if rb"\ud" not in raw and rb"\uD" not in raw:
        return raw
    return _ESCAPES.sub(lambda match: REPLACEMENT if match[1] else match[0], raw)


_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is beyond the range of a number")
    return number


_DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite
)  # Making one takes longer than using it.


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [inner for item in level for inner in _children(item) if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
