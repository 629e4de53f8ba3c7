"""Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html"""

from __future__ import annotations

from typing import Any

import msgspec

COMMENT = b": keep-alive\n\n"
"""A frame without data, which every client skips."""

DONE = b"data: [DONE]\n\n"


def frame(payload: Any) -> bytes:
    """One event without a name."""
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def named(payload: dict[str, Any]) -> bytes:
    """One event that has the name of its ``type``."""
    return f"event: {payload['type']}\n".encode() + frame(payload)
