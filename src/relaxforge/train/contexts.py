"""A rollout step as optimiser steps of flat Contexts, each sampled token with its share in the loss.

A Session with many Contexts is one logical sample: each of its distinct sampled tokens counts once, as the mean over
the distinct Contexts that hold it. Handing in the same Context twice therefore changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from relaxforge.core.errors import TrainError
from relaxforge.core.samples import ContextPath, SampleGroup, Segment, TrainBatch
from relaxforge.train.config import TrainConfig

Scalar = TypeVar("Scalar", bound=np.generic)

UNKNOWN_VERSION = -1


@dataclass(frozen=True, slots=True)
class FlatContext:
    """One Context as a row of ``tokens``; the other arrays have one entry per sampled token, in order.

    ``positions`` are where the sampled tokens stand, ``logprobs`` and ``versions`` what the engine reported about
    them, ``weights`` their shares in the loss of the optimiser step.
    """

    session_id: str
    advantage: float
    tokens: NDArray[np.int32]
    positions: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    versions: NDArray[np.int32]
    weights: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Session:
    """The distinct Contexts of one Session. ``holders`` counts, per sampled segment, the Contexts that hold it."""

    session_id: str
    segments: tuple[Segment, ...]
    contexts: tuple[ContextPath, ...]
    holders: Counter[int]

    @property
    def sampled_tokens(self) -> int:
        return sum(len(self.segments[index].tokens) for index in self.holders)


def optimiser_steps(batch: TrainBatch, config: TrainConfig) -> list[list[FlatContext]]:
    """The Contexts of each optimiser step: ``global_batch_size`` Sessions each, in the order of the batch.

    Contexts that cannot move the weights (advantage 0 without KL loss or entropy bonus) are left out; their Sessions
    still count in the mean. Errors: ``TrainError`` naming the Session whose numbers are unusable.
    """
    sessions = _sessions(batch)
    shift, scale = _standardisation(sessions) if config.normalize_advantages else (0.0, 1.0)
    size = config.global_batch_size or max(1, len(sessions))
    return [
        [
            flat
            for session, denominator in _shares(sessions[start : start + size], config.calculate_per_token_loss)
            for flat in _flatten(session, denominator, shift, scale, keep_all=config.gradient_without_advantage)
        ]
        for start in range(0, len(sessions), size)
    ]


def _sessions(batch: TrainBatch) -> list[_Session]:
    return [
        _session(group, session_id)
        for group in batch.groups
        for session_id in dict.fromkeys(context.session_id for context in group.contexts)
    ]


def _session(group: SampleGroup, session_id: str) -> _Session:
    own = [context for context in group.contexts if context.session_id == session_id]
    distinct = {(context.path, context.advantage): context for context in own}.values()
    holders = Counter(i for context in distinct for i in set(context.path) if group.segments[i].sampled)
    return _Session(session_id, group.segments, tuple(distinct), holders)


def _shares(sessions: Sequence[_Session], per_token: bool) -> Iterable[tuple[_Session, float]]:
    """Each Session that sampled anything, with the number by which its tokens divide their loss."""
    speaking = [session for session in sessions if session.sampled_tokens]
    total = sum(session.sampled_tokens for session in speaking)
    for session in speaking:
        yield session, float(total if per_token else session.sampled_tokens * len(speaking))


def _standardisation(sessions: Sequence[_Session]) -> tuple[float, float]:
    """Mean and inverse deviation of the Sessions' advantages; a Session counts once, by the mean of its Contexts."""
    advantages = np.array([np.mean([context.advantage for context in session.contexts]) for session in sessions])
    return (float(advantages.mean()), 1.0 / (float(advantages.std()) + 1e-8)) if len(advantages) else (0.0, 1.0)


def _flatten(
    session: _Session, denominator: float, shift: float, scale: float, *, keep_all: bool
) -> Iterable[FlatContext]:
    for context in session.contexts:
        advantage = (context.advantage - shift) * scale
        if keep_all or advantage != 0.0:
            yield _flat(session, context, advantage, denominator)


def _flat(session: _Session, context: ContextPath, advantage: float, denominator: float) -> FlatContext:
    segments = [session.segments[index] for index in context.path]
    starts = np.cumsum([0, *(len(segment.tokens) for segment in segments)])
    answers = [
        (index, segment, start)
        for index, segment, start in zip(context.path, segments, starts, strict=False)
        if segment.sampled
    ]
    flat = FlatContext(
        session_id=session.session_id,
        advantage=advantage,
        tokens=_joined((np.frombuffer(s.tokens, np.int32) for s in segments), np.int32),
        positions=_joined((np.arange(start, start + len(s.tokens)) for _, s, start in answers), np.int64),
        logprobs=_joined((np.frombuffer(s.logprobs, np.float32) for _, s, _ in answers), np.float32),
        versions=_joined((_versions(s) for _, s, _ in answers), np.int32),
        weights=_joined(
            (np.full(len(s.tokens), 1.0 / (denominator * session.holders[i])) for i, s, _ in answers), np.float32
        ),
    )
    _check(flat)
    return flat


def _joined(parts: Iterable[NDArray[Scalar]], kind: type[Scalar]) -> NDArray[Scalar]:
    joined: NDArray[Scalar] = np.concatenate([np.zeros(0, kind), *parts]).astype(kind, copy=False)
    return joined


def _versions(segment: Segment) -> NDArray[np.int32]:
    versions = np.full(len(segment.tokens), UNKNOWN_VERSION, np.int32)
    for span in segment.versions:
        versions[span.start : span.end] = span.version
    return versions


def _check(flat: FlatContext) -> None:
    where = f"session {flat.session_id}"
    if not np.isfinite(flat.advantage):
        raise TrainError(f"{where}: advantage {flat.advantage} is not a finite number; mend the reward or its credit")
    if len(flat.logprobs) != len(flat.positions):
        raise TrainError(f"{where}: {len(flat.logprobs)} logprobs for {len(flat.positions)} sampled tokens")
    if not np.isfinite(flat.logprobs).all():
        raise TrainError(f"{where}: a rollout logprob is not a finite number; the engine reported it so")
    if len(flat.positions) and flat.positions[0] == 0:
        raise TrainError(f"{where}: its Context begins with a sampled token, which nothing predicts")
