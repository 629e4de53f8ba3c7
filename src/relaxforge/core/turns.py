"""Tokens in, tokens out: what crosses between forest, render and engine for one Turn.

Token ids travel as ``array('i')`` (4 bytes each) and logprobs as ``array('f')``, so a captured sampled token costs
8 bytes and a lineage is joined by copying memory, not by boxing integers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from relaxforge.core.messages import Message

if TYPE_CHECKING:
    TokenIds = array[int]
    LogProbs = array[float]
else:  # Python 3.11 cannot subscript array at run time, where ipc reads the fields' types
    TokenIds = LogProbs = array


def token_ids(values: Iterable[int] = ()) -> TokenIds:
    """An ``array('i')`` of token ids from any iterable of ints."""
    return array("i", values)


def log_probs(values: Iterable[float] = ()) -> LogProbs:
    """An ``array('f')`` of logprobs from any iterable of floats."""
    return array("f", values)


class FinishReason(StrEnum):
    """Why an engine stopped one generation."""

    STOP = "stop"
    """The model sampled an end-of-turn token, or a stop string appeared."""
    LENGTH = "length"
    """The token budget of the request is used up."""
    ABORT = "abort"
    """Somebody aborted the request; what was sampled until then is in the result."""


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Weight version of the generated tokens ``start`` (inclusive) to ``end`` (exclusive) of one answer."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample one answer. ``top_k <= 0`` and ``top_p == 1`` switch their filter off; temperature 0 is greedy.

    ``stop`` strings end the answer once they appear in its text; their tokens stay sampled. ``seed`` makes the
    answer reproducible where the engine declares ``per_request_seed``.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One attempt to generate. ``prompt_ids[delta_start:]`` is what this Turn added to the Session's lineage."""

    session_id: str
    request_id: str
    prompt_ids: TokenIds
    delta_start: int
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """Tokens that arrived since the last chunk, with one logprob each, all sampled by ``weight_version``."""

    request_id: str
    ids: TokenIds
    logprobs: LogProbs
    weight_version: int


@dataclass(frozen=True, slots=True)
class Generation:
    """Everything one attempt sampled, end token included.

    A logprob is the log-softmax of ``logits / temperature`` before top-k and top-p. ``cached_tokens``: prompt tokens
    that needed no computation, ``None`` when the engine cannot tell. ``stop_match``: the stop string that ended it.
    """

    ids: TokenIds
    logprobs: LogProbs
    versions: tuple[VersionSpan, ...]
    finish: FinishReason
    cached_tokens: int | None = None
    stop_match: str | None = None


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """New weights for an engine: ``path`` names a folder with ``model.safetensors`` (may lie in shared memory)."""

    version: int
    path: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do, declared before it is asked to."""

    per_request_seed: bool
    cached_tokens: bool
    max_context: int | None
    """Longest prompt plus answer in tokens; ``None`` without a limit of its own."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """A momentary reading of an engine. Token figures are cache positions, ``None`` when there is no cache."""

    running: int
    waiting: int
    cache_tokens_used: int | None = None
    cache_tokens_total: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


TurnFinish = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class HostedAnswer:
    """What a hosted model said, in messages; ``usage`` as its provider counts."""

    message: Message
    finish: TurnFinish
    usage: Usage


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One generated token as the Chat API shows it. ``raw`` are the token's own bytes (may be part of a character)."""

    token: str
    logprob: float
    raw: bytes


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text of an answer that is still being sampled, settled: the pieces together begin the final text.

    ``reasoning`` is the whole reasoning, which stands before the text.
    """

    request_id: str
    text: str
    reasoning: str
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """The committed answer to one model request, ready for any dialect."""

    request_id: str
    message: Message
    finish: TurnFinish
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] | None = None
    stop_match: str | None = None
    replayed: bool = False
    """Whether this is the recorded answer of an earlier, equal request."""


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """Generated ids as an assistant message; ``malformed`` names why it degraded to plain text, if it did."""

    message: Message
    malformed: str | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """The token delta a Turn adds before the model speaks: rendered messages plus the generation prompt, mask 0.

    ``normalised`` counts, by cause, what rendering had to change (a folded system message, a missing end of turn).
    """

    ids: TokenIds
    normalised: dict[str, int] = field(default_factory=dict)
