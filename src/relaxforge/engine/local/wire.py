"""What main and the engine process tell each other (each a body of an ``ipc`` frame)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from relaxforge.core.turns import FinishReason, LogProbs, Sampling, TokenIds


@dataclass(frozen=True, slots=True)
class Start:
    """How to set up the engine; answered with ``Ready``. ``None`` lets the process choose."""

    folder: str
    device: Literal["auto", "cpu", "cuda"]
    dtype: Literal["auto", "bfloat16", "float32"]
    max_concurrent: int
    max_context: int
    max_batch_tokens: int | None
    cache_tokens: int | None
    stop_ids: tuple[int, ...]
    weight_version: int


@dataclass(frozen=True, slots=True)
class Ready:
    slots: int
    slot_tokens: int


@dataclass(frozen=True, slots=True)
class Submit:
    """A request under a number of main's choosing; ``budget`` is its ``max_tokens`` within the context limit."""

    number: int
    prompt_ids: TokenIds
    budget: int
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a request; with an ``error``, ``finish`` means nothing."""

    number: int
    finish: FinishReason
    cached_tokens: int
    stop_match: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What one step sampled: request ``numbers[i]`` got ``ids[i]``; then which requests ended."""

    version: int
    numbers: TokenIds
    ids: TokenIds
    logprobs: LogProbs
    ended: tuple[Ended, ...]
