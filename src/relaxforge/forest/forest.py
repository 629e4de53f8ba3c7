"""SessionForest: begin a Turn (reads only), commit it (the only mutation), mark deliveries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relaxforge.core.messages import Message, ModelRequest, digest
from relaxforge.core.turns import Generation, Observation
from relaxforge.forest.chain import ChainMemory, extend, link
from relaxforge.forest.drift import DriftNote, drift_notes, leniencies
from relaxforge.forest.state import Kind, State


@dataclass(frozen=True, slots=True)
class PendingTurn:
    """A request placed in the forest, nothing committed yet.

    The first ``split`` messages of the request are the conversation of ``parent``; the rest is new. ``observation`` is
    set when the whole request is an observation already committed (repeated sampling): then nothing is rendered.
    ``names`` are the digests under which the request's full conversation is found again: its canonical one first.
    """

    request: ModelRequest
    parent: State
    split: int
    observation: State | None
    names: tuple[bytes, ...]
    leniency: Mapping[str, int]
    drift: tuple[DriftNote, ...]


class SessionForest:
    """Every committed conversation of one Session.

    States are found by the chained digest of their canonical messages, seeded with tools and template arguments. A
    State matched leniently keeps the client's spelling as a further name, so the next request finds it exactly.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.states: list[State] = []
        self.strict = strict
        self._named: dict[bytes, list[State]] = {}
        self._lenient: dict[bytes, list[State]] = {}
        self._memory = ChainMemory()
        self._deliveries = 0

    @property
    def roots(self) -> list[State]:
        return [state for state in self.states if state.kind is Kind.ROOT]

    @property
    def responses(self) -> Iterator[State]:
        return (state for state in self.states if state.is_response)

    @property
    def sampled_tokens(self) -> int:
        return sum(len(state.tokens) for state in self.responses)

    def begin(self, request: ModelRequest) -> PendingTurn:
        """Find the longest committed prefix of ``request``. Reads only."""
        start = digest(b"root", request.seed_digest)
        chain = self._memory.chain(start, request.messages)
        parent, split, tied = self._longest(chain, request.messages, self._named)
        leniency: dict[str, int] = {}
        if not self.strict and _has_answer(request.messages, split):
            loose = [start, *extend(start, (message.lenient for message in request.messages))]
            candidate, reach, choice = self._longest(loose, request.messages, self._lenient)
            if candidate is not None and reach > split:
                parent, split, tied = candidate, reach, choice
                leniency = dict(leniencies(candidate.conversation(), request.messages[:reach]))
        if tied:
            leniency["tied_siblings"] = 1
        if parent is None:
            parent = State(len(self.states), Kind.ROOT, None, start, start)
        canonical = extend(parent.digest, (message.exact for message in request.messages[split:]))
        names = tuple(dict.fromkeys([canonical[-1] if canonical else parent.digest, chain[-1]]))
        if parent.kind is Kind.OBSERVATION:
            owner = parent.parent
            assert owner is not None  # noqa: S101  (an observation always has a parent; for the type checker)
            return PendingTurn(request, owner, split, parent, names, leniency, ())
        return PendingTurn(request, parent, split, None, names, leniency, drift_notes(parent, split, request.messages))

    def commit(
        self, pending: PendingTurn, observation: Observation, generation: Generation, answer: Message, request_id: str
    ) -> State:
        """Add the observation (unless it is there) and the response, together. The only mutation of the tree."""
        parent = self._adopt(pending.parent)
        observed = pending.observation or self._observe(parent, pending, observation)
        response = State(
            len(self.states),
            Kind.RESPONSE,
            observed,
            link(observed.digest, answer.exact),
            link(observed.lenient, answer.lenient),
            (answer,),
            generation.ids,
            generation.logprobs,
            generation.versions,
            generation.finish,
            request_id,
        )
        self._add(response, [link(name, answer.exact) for name in pending.names])
        return response

    def deliver(self, response: State) -> None:
        """Mark an answer as read by its client. Later requests continue the one delivered last."""
        self._deliveries += 1
        response.delivered = self._deliveries

    def find(self, request: ModelRequest) -> tuple[State | None, int]:
        """The State that ``request``'s conversation names and how many messages match (all of them on success)."""
        start = digest(b"root", request.seed_digest)
        chain = [start, *extend(start, (message.exact for message in request.messages))]
        state, reach = self._reach(chain, self._named)
        if reach < len(request.messages) and not self.strict:
            loose = [start, *extend(start, (message.lenient for message in request.messages))]
            candidate, lenient_reach = self._reach(loose, self._lenient)
            if lenient_reach > reach:
                state, reach = candidate, lenient_reach
        return state, reach

    def _reach(self, chain: Sequence[bytes], index: Mapping[bytes, list[State]]) -> tuple[State | None, int]:
        for count in range(len(chain) - 1, -1, -1):
            if states := [s for s in index.get(chain[count], ()) if s.messages or s.kind is Kind.ROOT]:
                return max(states, key=lambda state: (state.is_response, state.delivered, state.index)), count
        return None, 0

    def _longest(
        self, chain: Sequence[bytes], messages: Sequence[Message], index: Mapping[bytes, list[State]]
    ) -> tuple[State | None, int, bool]:
        """The State to continue, how many messages it covers, and whether equal siblings left a choice.

        Past the last message only answers and the root can be continued: an observation already ends in the
        generation prompt, so it serves only a request that ends exactly there.
        """
        for count in range(len(messages), -1, -1):
            whole = count == len(messages)
            states = [s for s in index.get(chain[count], ()) if whole or s.kind is not Kind.OBSERVATION]
            if whole and (observed := [s for s in states if s.kind is Kind.OBSERVATION and s.messages]):
                return observed[-1], count, False
            if states := [s for s in states if s.kind is not Kind.OBSERVATION]:
                return _latest(states), count, len(states) > 1
        return None, 0, False

    def _adopt(self, parent: State) -> State:
        if parent.kind is not Kind.ROOT:
            return parent
        if known := self._named.get(parent.digest):
            return known[0]
        parent.index = len(self.states)
        self._add(parent, [])
        return parent

    def _observe(self, parent: State, pending: PendingTurn, observation: Observation) -> State:
        """The observation of two parallel requests with the same history is one State."""
        for known in self._named.get(pending.names[0], ()):
            if known.parent is parent and known.kind is Kind.OBSERVATION and known.tokens == observation.ids:
                return known
        messages = pending.request.messages[pending.split :]
        lenient = extend(parent.lenient, (message.lenient for message in messages))
        observed = State(
            len(self.states),
            Kind.OBSERVATION,
            parent,
            pending.names[0],
            lenient[-1] if lenient else parent.lenient,
            messages,
            observation.ids,
        )
        self._add(observed, pending.names)
        return observed

    def _add(self, state: State, names: Sequence[bytes]) -> None:
        parent = state.parent
        if parent is not None:
            state.depth = parent.depth + len(state.messages)
            state.length = parent.length + len(state.tokens)
            parent.children.append(state)
        self.states.append(state)
        for name in dict.fromkeys([state.digest, *names]):
            self._named.setdefault(name, []).append(state)
        self._lenient.setdefault(state.lenient, []).append(state)


def _has_answer(messages: Sequence[Message], start: int) -> bool:
    return any(messages[index].role == "assistant" for index in range(start, len(messages)))


def _latest(states: Sequence[State]) -> State:
    """The answer delivered last; among undelivered ones the one committed last."""
    return max(states, key=lambda state: (state.delivered, state.index))
