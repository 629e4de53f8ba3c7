"""Training input: Groups of Contexts as paths over shared token segments.

A Group's Contexts share tokens (the prompt, and everything before a fork), so tokens live once in ``segments`` and a
Context is a path through them. ``train`` decides whether to flatten the paths into rows or to compute shared segments
once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relaxforge.core.turns import LogProbs, TokenIds, VersionSpan, log_probs, token_ids


@dataclass(frozen=True, slots=True)
class Segment:
    """One node's tokens. ``logprobs`` is empty for observations (mask 0), else one value per token (mask 1)."""

    tokens: TokenIds
    logprobs: LogProbs = field(default_factory=log_probs)
    versions: tuple[VersionSpan, ...] = ()

    @property
    def sampled(self) -> bool:
        return len(self.logprobs) > 0


@dataclass(frozen=True, slots=True)
class ContextPath:
    """One Context of one Session: ``path`` indexes the Group's segments from the root on.

    ``advantage`` is the base credit of the whole Context. ``prompt_length`` counts the tokens before the first
    sampled one; the rest is the response of ``response_length`` tokens.
    """

    session_id: str
    name: str | None
    path: tuple[int, ...]
    advantage: float
    reward: float
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SampleGroup:
    """The Contexts of one Group that go into one training step."""

    group_id: str
    segments: tuple[Segment, ...]
    contexts: tuple[ContextPath, ...]


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """One rollout step's worth of Groups. ``temperature`` is the one the tokens were sampled with."""

    rollout_id: int
    groups: tuple[SampleGroup, ...]
    temperature: float


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What a training step did. ``metrics`` uses the published names (``train/loss``, ``train/grad_norm``, ...)."""

    rollout_id: int
    weight_version: int
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """One Context as a flat row: ``tokens`` is prompt + response; mask and logprobs cover the response only."""

    name: str | None
    state: str
    tokens: TokenIds
    prompt_length: int
    loss_mask: TokenIds
    logprobs: LogProbs
    versions: tuple[VersionSpan, ...]
    turns: int
    terminal_status: str
    reward: float | None = None
    advantage: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def response_length(self) -> int:
        return len(self.tokens) - self.prompt_length


def flatten(group: SampleGroup, context: ContextPath) -> tuple[TokenIds, int, TokenIds, LogProbs]:
    """A Context as (tokens, prompt_length, loss_mask, logprobs); the last two have one entry per response token."""
    tokens, mask, logprobs = token_ids(), token_ids(), log_probs()
    prompt_length = 0
    for index in context.path:
        segment = group.segments[index]
        tokens.extend(segment.tokens)
        if not segment.sampled and not mask:
            prompt_length += len(segment.tokens)
            continue
        mask.extend(token_ids([1 if segment.sampled else 0]) * len(segment.tokens))
        logprobs.extend(segment.logprobs if segment.sampled else log_probs([0.0]) * len(segment.tokens))
    return tokens, prompt_length, mask, logprobs
