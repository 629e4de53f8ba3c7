"""What must hold for every forest at every moment; run after each step in tests and behind a debug flag."""

from __future__ import annotations

from relaxforge.forest.chain import extend
from relaxforge.forest.forest import SessionForest
from relaxforge.forest.state import Kind, State


def check_integrity(forest: SessionForest) -> None:
    """Raise ``AssertionError`` naming the first State that breaks an invariant."""
    for position, state in enumerate(forest.states):
        _require(state.index == position, state, f"stands at {position}")
        if state.parent is None:
            _require(state.kind is Kind.ROOT and not len(state.tokens), state, "is an orphan")
            continue
        _check_child(state, state.parent)


def _check_child(state: State, parent: State) -> None:
    _require(parent.index < state.index, state, "is older than its parent")
    _require(sum(child is state for child in parent.children) == 1, state, "is not a child of its parent exactly once")
    chain = extend(parent.digest, (message.exact for message in state.messages))
    _require(state.digest == (chain[-1] if chain else parent.digest), state, "has a digest that does not chain")
    _require(state.depth == parent.depth + len(state.messages), state, "has a wrong depth")
    _require(state.length == parent.length + len(state.tokens), state, "has a wrong length")
    if state.is_response:
        _require(parent.kind is Kind.OBSERVATION, state, "answers no observation")
        _require(len(state.logprobs) == len(state.tokens), state, "has logprobs that do not align with its tokens")
        _require(_covers(state), state, "has weight versions that do not cover its tokens")
    else:
        _require(parent.kind is not Kind.OBSERVATION, state, "observes behind an observation")
        _require(not len(state.logprobs), state, "is an observation with logprobs")


def _covers(state: State) -> bool:
    end = 0
    for span in state.versions:
        if span.start != end or span.end <= span.start:
            return False
        end = span.end
    return end == len(state.tokens)


def _require(holds: bool, state: State, complaint: str) -> None:
    if not holds:
        raise AssertionError(f"State {state.name} ({state.kind}) {complaint}")
