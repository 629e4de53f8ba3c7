"""Which States an agent's output selects for training: the implicit Context, or the explicit records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from relaxforge.core.errors import AgentError
from relaxforge.core.messages import ModelRequest, chat_message
from relaxforge.core.sessions import FailureCategory
from relaxforge.forest.drift import first_difference
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
    leaves = [state for state in live if state.is_response and not _live_below(state, live)]
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
        if answer.delivered:
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
        raise AgentError(_mismatch(name, record, state, reach), FailureCategory.EXPORT_MISMATCH)
    answer = _last_answer(state)
    if answer is None:
        raise AgentError(
            f"record {name!r} names State {state.name}, which has no answer of the model in its history",
            FailureCategory.EXPORT_MISMATCH,
        )
    return Context(name, answer, complete=answer is state)


def _last_answer(state: State) -> State | None:
    return next((step for step in reversed(state.lineage()) if step.is_response), None)


def _mismatch(name: str, record: ModelRequest, nearest: State | None, reach: int) -> str:
    start = f"record {name!r} matches no committed State: message {reach} of {len(record.messages)} differs"
    if nearest is None:
        return start + "; no Turn used these tools and chat_template_kwargs. Export them exactly as they were sent"
    wanted = record.messages[reach]
    committed = [
        message
        for child in nearest.children
        for step in ([child] if child.messages else child.children)
        for message in step.messages[:1]
    ]
    where = f"; the nearest State is {nearest.name} ({nearest.depth} messages)"
    if nearest.kind is Kind.ROOT:
        where = "; no committed conversation begins like this"
    if not committed:
        return f"{start}{where}, and no Turn continued it"
    best = next((m for m in committed if m.role == wanted.role), committed[0])
    if best.role != wanted.role:
        return f"{start}{where}; there the role is {best.role}, the record has {wanted.role}"
    if best.text != wanted.text:
        return f"{start}{where}; {first_difference(best.text, wanted.text)}"
    return f"{start}{where}; committed {chat_message(best)}, the record has {chat_message(wanted)}"
