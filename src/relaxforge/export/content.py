"""The text in a Chat message, whatever shape its content has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message; an image stands as ``[image]``, since its bytes are no text."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part["text"] if part.get("type") == "text" else "[image]" for part in content)
    return content or ""
