"""Which States an agent's output selects for training: the implicit Context, or the explicit records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from relaxforge.core.errors import AgentError
from relaxforge.core.messages import Message, ModelRequest
from relaxforge.core.sessions import FailureCategory
from relaxforge.forest.drift import difference, shared_prefix
from relaxforge.forest.forest import SessionForest
from relaxforge.forest.state import Kind, State


@dataclass(frozen=True, slots=True)
class Context:
    """An exported State: ``state`` is the last answer of the Context, ``name`` is ``None`` for implicit export.

    ``complete`` is false when the record ended in messages that no answer followed.
    """

    name: str | None
    state: State
    complete: bool = True


def implicit_context(forest: SessionForest, policy: Literal["linear", "main"]) -> Context:
    """The one Context of a Session whose agent named none.

    Undelivered siblings and failed requests do not count. Errors: ``AgentError`` ``export_mismatch`` when the history
    is not linear, with what to write instead.
    """
    live = _live(forest)
    if not live:
        raise AgentError("no committed answer was delivered to the agent, so nothing can be exported",
                         FailureCategory.EXPORT_MISMATCH)  # fmt: skip
    leaves = [state for state in forest.responses if state in live and not _live_below(state, live)]
    if policy == "main":
        first = min(leaves, key=lambda state: (state.lineage()[0].index, -state.delivered))
        return Context(None, first)
    if len(leaves) > 1:
        raise AgentError(_nonlinear(leaves), FailureCategory.EXPORT_MISMATCH)
    return Context(None, leaves[0])


def _live(forest: SessionForest) -> set[State]:
    """States on the way to an answer that reached the agent."""
    live: set[State] = set()
    for answer in forest.responses:
        if answer.reached_agent:
            live.update(answer.lineage())
    return live


def _live_below(state: State, live: set[State]) -> bool:
    return any(child in live for child in state.children)


def _nonlinear(leaves: Sequence[State]) -> str:
    shown = "; ".join(
        f"{leaf.name} ({leaf.depth} messages, begins {leaf.conversation()[0].text[:40]!r})" for leaf in leaves[:4]
    )
    return (
        f"the history is not linear: it has {len(leaves)} Contexts ({shown}). Write one JSONL record with name and "
        "messages to RELAX_OUTPUT_JSON for the Context to train, or set --agentic-implicit-export main"
    )


def explicit_context(forest: SessionForest, name: str, record: ModelRequest) -> Context:
    """The State that a record names. Errors: ``AgentError`` ``export_mismatch`` naming the nearest State."""
    state, reach = forest.find(record)
    if state is None or reach < len(record.messages):
        raise AgentError(_mismatch(name, record, state, reach, forest.strict), FailureCategory.EXPORT_MISMATCH)
    answer = _last_answer(state)
    if answer is None:
        raise AgentError(
            f"record {name!r} names State {state.name}, which has no answer of the model in its history",
            FailureCategory.EXPORT_MISMATCH,
        )
    return Context(name, answer, complete=answer is state)


def _last_answer(state: State) -> State | None:
    return next((step for step in reversed(state.lineage()) if step.is_response), None)


def _mismatch(name: str, record: ModelRequest, nearest: State | None, reach: int, strict: bool) -> str:
    start = f"record {name!r} matches no committed State"
    if nearest is None:
        return f"{start}: no Turn used these tools and chat_template_kwargs. Export them exactly as they were sent"
    known = f"the nearest State is {nearest.name} ({nearest.depth} messages)"
    if nearest.kind is Kind.ROOT:
        known = "no committed conversation begins like this"
    rest = record.messages[reach:]
    likest = max((_Likeness(run, rest, strict) for run in _continuations(nearest)), key=_Likeness.order, default=None)
    if likest is None:
        return f"{start}: {known}, and no Turn continued it with message {reach} of {len(record.messages)}"
    place = reach + likest.equal
    if place == len(record.messages):
        return f"{start}: it ends in the middle of what one request added; {known}. Export the messages behind, too"
    return f"{start}: message {place} of {len(record.messages)} differs; {known}; {likest.difference()}"


def _continuations(state: State) -> Iterator[tuple[Message, ...]]:
    """The messages that some Turn put behind ``state``, one run of them per child."""
    for child in state.children:
        if child.messages:
            yield child.messages
        else:  # A Turn that added no message: its answers stand directly behind.
            yield from (answer.messages for answer in child.children)


class _Likeness:
    """How far a record goes along with one committed run of messages."""

    def __init__(self, run: Sequence[Message], record: Sequence[Message], strict: bool) -> None:
        self._pairs = list(zip(run, record, strict=False))
        same = (
            ours.exact == theirs.exact if strict else ours.lenient == theirs.lenient for ours, theirs in self._pairs
        )
        self.equal = sum(1 for _ in takewhile(bool, same))

    def order(self) -> tuple[int, bool, int]:
        """More equal messages are liker, then the same role, then a longer common beginning."""
        if self.equal == len(self._pairs):
            return self.equal, True, 0
        ours, theirs = self._pairs[self.equal]
        return self.equal, ours.role == theirs.role, shared_prefix(ours.text, theirs.text)

    def difference(self) -> str:
        return difference(*self._pairs[self.equal])
