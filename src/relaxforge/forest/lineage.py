"""From a Context to a training row, and where every sampled token went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relaxforge.core.samples import Sample, Segment
from relaxforge.core.turns import FinishReason, VersionSpan, log_probs, token_ids
from relaxforge.forest.forest import SessionForest
from relaxforge.forest.select import Context
from relaxforge.forest.state import State


def sample(context: Context) -> Sample:
    """Join the deltas of the Context's lineage into one row: prompt, then mask 1 for answers and 0 for the rest."""
    tokens, mask, logprobs = token_ids(), token_ids(), log_probs()
    versions: list[VersionSpan] = []
    prompt_length, turns = 0, 0
    for state in context.state.lineage():
        if state.is_response:
            turns += 1
            offset = len(mask)
            versions += [VersionSpan(s.version, s.start + offset, s.end + offset) for s in state.versions]
        if turns == 0:
            prompt_length += len(state.tokens)
        else:
            mask.extend(token_ids([1 if state.is_response else 0]) * len(state.tokens))
            logprobs.extend(state.logprobs if state.is_response else log_probs([0.0]) * len(state.tokens))
        tokens.extend(state.tokens)
    return Sample(
        name=context.name,
        state=context.state.name,
        tokens=tokens,
        prompt_length=prompt_length,
        loss_mask=mask,
        logprobs=logprobs,
        versions=tuple(versions),
        turns=turns,
        terminal_status=terminal_status(context),
    )


def terminal_status(context: Context) -> str:
    """``completed``, or ``truncated`` when the last answer ran out of budget or nothing followed the record's end."""
    finished = context.complete and context.state.finish is FinishReason.STOP
    return "completed" if finished else "truncated"


def segments(context: Context) -> list[Segment]:
    """The lineage as training segments, one per State."""
    return [Segment(state.tokens, state.logprobs, state.versions) for state in context.state.lineage()]


@dataclass(frozen=True, slots=True)
class TokenAccount:
    """Where the sampled tokens of a Session went: ``sampled == trained + sum(masked) + undelivered``.

    Counted over distinct forest tokens, end tokens included. ``repeats`` counts the further appearances of trained
    tokens in other Contexts and is not part of the sum.
    """

    sampled: int = 0
    trained: int = 0
    masked: Mapping[str, int] = field(default_factory=dict)
    undelivered: int = 0
    repeats: int = 0

    @property
    def balanced(self) -> bool:
        return self.sampled == self.trained + sum(self.masked.values()) + self.undelivered


def account(forest: SessionForest, exported: Sequence[Context], reason: str | None) -> TokenAccount:
    """Settle a Session's tokens.

    With ``reason`` (``session_failed``, ``group_dropped``, ``group_filtered``, ``surplus``) nothing of it is trained;
    without, the answers on exported lineages are, and delivered ones elsewhere are masked as ``not_exported``.
    """
    uses: dict[State, int] = {}
    for context in exported if reason is None else ():
        for state in context.state.lineage():
            if state.is_response:
                uses[state] = uses.get(state, 0) + 1
    trained = undelivered = masked = 0
    for answer in forest.responses:
        if answer in uses:
            trained += len(answer.tokens)
        elif answer.reached_agent:
            masked += len(answer.tokens)
        else:
            undelivered += len(answer.tokens)
    return TokenAccount(
        sampled=forest.sampled_tokens,
        trained=trained,
        masked={reason or "not_exported": masked} if masked else {},
        undelivered=undelivered,
        repeats=sum(len(state.tokens) * (count - 1) for state, count in uses.items()),
    )
