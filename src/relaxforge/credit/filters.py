"""Sampling filters: whether a Group is worth training on, judged by the rewards of its Sessions."""

from __future__ import annotations

from collections.abc import Sequence


def nonzero_std(rewards: Sequence[float]) -> bool:
    """Keep a Group whose Sessions earned different rewards; equal ones carry no signal for group-relative credit."""
    return len(set(rewards)) > 1
