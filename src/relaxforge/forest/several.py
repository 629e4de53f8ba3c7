"""One or several: what is nearly always one thing is kept bare, because a tuple around it costs 48 bytes a Turn."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def bare(things: tuple[T, ...]) -> T | tuple[T, ...]:
    """How ``things``, none of them a tuple, are kept."""
    return things[0] if len(things) == 1 else things


def several(kept: T | tuple[T, ...]) -> tuple[T, ...]:
    """The things that ``bare`` was given."""
    return kept if isinstance(kept, tuple) else (kept,)
