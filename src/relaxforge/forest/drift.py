"""Where a history differs from what was generated: causes, places and first differing characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from relaxforge.core.messages import Message
from relaxforge.forest.state import State

EXCERPT = 60
RECENT = 64
"""Turns that are looked at for the answer that a message may once have been; bounds the cost of a request."""


@dataclass(frozen=True, slots=True)
class DriftNote:
    """An assistant message of a request that its Context does not hold as an answer of ours.

    ``cause`` is ``rewritten`` (an answer of ours stood there and differs), ``history_changed`` (it is an answer of
    ours, but a message before it differs) or ``foreign`` (it is none of ours). The ``tokens_without_signal`` sampled
    tokens of that answer do not belong to the continued Context.
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
    """One note per assistant message behind ``split``, the number of messages that ``parent`` accounts for.

    ``parent`` and the answers that once followed it are walked along with the request, so that answers behind a
    changed message are still known as ours.
    """
    notes: list[DriftNote] = []
    above: State | None = parent
    start = split
    for index in range(split, len(messages)):
        if messages[index].role != "assistant":
            continue
        note, above = _note(above, messages, start, index, spelling=not notes)
        notes.append(note)
        start = index + 1
    return tuple(notes)


def _note(
    above: State | None, messages: Sequence[Message], start: int, index: int, *, spelling: bool
) -> tuple[DriftNote, State | None]:
    theirs = messages[start : index + 1]
    answer = _counterpart(above, theirs) if above is not None else None
    if answer is None:
        return DriftNote(index, "foreign", _clip(messages[index].text, 0), 0), None
    place = _first_changed(_turn(answer), theirs, spelling=spelling)
    if place is None:
        return DriftNote(index, "history_changed", "unchanged itself", len(answer.tokens)), answer
    excerpt = difference(_turn(answer)[place], theirs[place])
    if place == len(theirs) - 1:
        return DriftNote(index, "rewritten", excerpt, len(answer.tokens)), answer
    return DriftNote(index, "history_changed", f"message {start + place} {excerpt}", len(answer.tokens)), answer


def _counterpart(above: State, theirs: Sequence[Message]) -> State | None:
    """The answer of ours that came after ``above`` where the request has ``theirs``, if one is recognisable.

    That is one behind the same messages, or the same answer behind others.
    """
    before, last = [message.lenient for message in theirs[:-1]], theirs[-1]
    answers = [
        answer
        for observation in islice(reversed(above.children), RECENT)
        if len(observation.messages) == len(before)
        for answer in observation.children
        if answer.messages[-1].lenient == last.lenient or [m.lenient for m in observation.messages] == before
    ]
    return max(answers, key=lambda answer: shared_prefix(answer.messages[-1].text, last.text), default=None)


def _turn(answer: State) -> tuple[Message, ...]:
    observed = answer.parent.messages if answer.parent is not None else ()
    return observed + answer.messages


def _first_changed(ours: Sequence[Message], theirs: Sequence[Message], *, spelling: bool) -> int | None:
    """Where two stretches differ in meaning; with ``spelling``, else where they are spelled differently."""
    pairs = list(zip(ours, theirs, strict=True))
    lenient = (index for index, (left, right) in enumerate(pairs) if left.lenient != right.lenient)
    exact = (index for index, (left, right) in enumerate(pairs) if spelling and left.exact != right.exact)
    return next(lenient, next(exact, None))


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


def difference(ours: Message, theirs: Message) -> str:
    """What differs between two messages, for a person to see: the first differing characters where it is the text."""
    if ours.role != theirs.role:
        return f"has another role: committed {ours.role!r}, here {theirs.role!r}"
    if ours.text != theirs.text:
        return first_difference(ours.text, theirs.text)
    if ours.reasoning != theirs.reasoning:
        return f"reasoning {first_difference(ours.reasoning, theirs.reasoning)}"
    if ours.tool_calls != theirs.tool_calls:
        return f"tool calls {first_difference(_shown(ours), _shown(theirs))}"
    if ours.tool_call_id != theirs.tool_call_id:
        return f"tool_call_id: committed {ours.tool_call_id!r}, here {theirs.tool_call_id!r}"
    return "has other images"


def first_difference(ours: str, theirs: str) -> str:
    """The first differing characters of two texts, for a person to see."""
    at = shared_prefix(ours, theirs)
    return f"at character {at}: committed {_clip(ours, at)!r}, here {_clip(theirs, at)!r}"


def _shown(message: Message) -> str:
    return ", ".join(f"{call.name}({call.arguments}) {call.id}" for call in message.tool_calls)


def _clip(text: str, at: int) -> str:
    return text[at : at + EXCERPT] + ("…" if len(text) > at + EXCERPT else "")
