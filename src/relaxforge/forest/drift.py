"""Where a history differs from what was generated: causes, places and first differing characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from relaxforge.core.messages import Message
from relaxforge.forest.state import State

EXCERPT = 60


@dataclass(frozen=True, slots=True)
class DriftNote:
    """An assistant message of a request that is not an answer of ours.

    ``cause`` is ``rewritten`` (an answer of ours stood there and differs) or ``foreign`` (none did). The
    ``tokens_without_signal`` sampled tokens of the rewritten answer do not belong to the continued Context.
    """

    message_index: int
    cause: str
    excerpt: str
    tokens_without_signal: int


def leniencies(committed: Sequence[Message], request: Sequence[Message]) -> Counter[str]:
    """By cause, what had to be overlooked to match ``request`` with the ``committed`` conversation."""
    causes: Counter[str] = Counter()
    for ours, theirs in zip(committed, request, strict=True):
        if ours.exact == theirs.exact:
            continue
        if ours.reasoning != theirs.reasoning:
            causes["reasoning_dropped" if not theirs.reasoning else "reasoning_changed"] += 1
        if ours.text != theirs.text:
            causes["white_space"] += 1
        if ours.tool_call_id != theirs.tool_call_id or [c.id for c in ours.tool_calls] != [
            c.id for c in theirs.tool_calls
        ]:
            causes["tool_call_id"] += 1
    return causes


def drift_notes(parent: State, split: int, messages: Sequence[Message]) -> tuple[DriftNote, ...]:
    """One note per assistant message behind ``split``, the number of messages that ``parent`` accounts for."""
    notes: list[DriftNote] = []
    for index in range(split, len(messages)):
        message = messages[index]
        if message.role != "assistant":
            continue
        nearest = _nearest_answer(parent, index + 1, message) if not notes else None
        if nearest is None:
            notes.append(DriftNote(index, "foreign", _clip(message.text, 0), 0))
        else:
            difference = first_difference(nearest.messages[-1].text, message.text)
            notes.append(DriftNote(index, "rewritten", difference, len(nearest.tokens)))
    return tuple(notes)


def _nearest_answer(parent: State, depth: int, message: Message) -> State | None:
    answers = [
        answer
        for observation in parent.children
        for answer in observation.children
        if answer.is_response and answer.depth == depth
    ]
    return max(answers, key=lambda answer: shared_prefix(answer.messages[-1].text, message.text), default=None)


def shared_prefix(left: str, right: str) -> int:
    """Number of leading characters that both strings share."""
    low, high = 0, min(len(left), len(right))
    while low < high:  # Bisection: string slices compare at memory speed, characters one by one do not.
        middle = (low + high + 1) // 2
        if left[:middle] == right[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def first_difference(ours: str, theirs: str) -> str:
    """The first differing characters of two texts, for a person to see."""
    at = shared_prefix(ours, theirs)
    return f"at character {at}: generated {_clip(ours, at)!r}, request has {_clip(theirs, at)!r}"


def _clip(text: str, at: int) -> str:
    return text[at : at + EXCERPT] + ("…" if len(text) > at + EXCERPT else "")
