"""SessionForest: begin a Turn (reads only), commit it (the only mutation), mark deliveries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relaxforge.core.messages import Message, ModelRequest, Tool, digest
from relaxforge.core.turns import Generation, Observation
from relaxforge.forest.chain import ChainMemory, extend, link
from relaxforge.forest.drift import DriftNote, drift_notes, leniencies
from relaxforge.forest.several import bare, several
from relaxforge.forest.state import Kind, State

Index = dict[bytes, State | tuple[State, ...]]
"""States by digest, oldest first where a digest names several."""


@dataclass(frozen=True, slots=True)
class PendingTurn:
    """A request placed in the forest, nothing committed yet.

    The first ``split`` messages of the request are the conversation of ``parent``; the rest is new. ``observation`` is
    set when the whole request is an observation already committed (repeated sampling): then nothing is rendered.
    ``names`` are the digests under which the request's full conversation is found again: its canonical one first.
    ``spelling`` is set when leniency was needed: the digest by which this client calls the conversation of the State.
    """

    request: ModelRequest
    parent: State
    split: int
    observation: State | None
    names: tuple[bytes, ...]
    spelling: bytes | None
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
        self._named: Index = {}
        self._lenient: Index | None = None
        self._memory = ChainMemory()
        self._starts: dict[tuple[tuple[Tool, ...], str], bytes] = {}
        self._deliveries = 0

    @property
    def roots(self) -> list[State]:
        return [state for state in self.states if state.kind is Kind.ROOT]

    def offered(self, root: State) -> tuple[Tool, ...]:
        """The tools that every conversation below ``root`` offers to the model."""
        return next((tools for (tools, _), start in self._starts.items() if start == root.digest), ())

    @property
    def responses(self) -> Iterator[State]:
        return (state for state in self.states if state.is_response)

    @property
    def sampled_tokens(self) -> int:
        return sum(len(state.tokens) for state in self.responses)

    def begin(self, request: ModelRequest) -> PendingTurn:
        """Find the longest committed prefix of ``request``. Reads only."""
        start = self._start(request)
        chain = self._memory.chain(start, request.messages)
        root = State(len(self.states), Kind.ROOT, None, start)
        exact = self._longest(chain, 0, self._named) or _Found(root, 0)
        found = self._wider(exact, request.messages) or exact
        state, split, tied = found
        leniency: dict[str, int] = {}
        if found is not exact:
            ours = state.conversation(exact.split)
            leniency = dict(leniencies(ours, request.messages[exact.split : split]))
        if tied:
            leniency["tied_siblings"] = 1
        spelling = None if found is exact else chain[split]
        names = self._names(state, split, chain, request.messages)
        if state.kind is Kind.OBSERVATION and state.parent is not None:
            return PendingTurn(request, state.parent, split, state, names, spelling, leniency, ())
        drift = drift_notes(state, split, request.messages)
        return PendingTurn(request, state, split, None, names, spelling, leniency, drift)

    def _names(self, state: State, split: int, chain: list[bytes], messages: tuple[Message, ...]) -> tuple[bytes, ...]:
        """The digests of the whole request: the canonical one, and the client's spelling of it where that differs."""
        if chain[split] == state.digest:
            chain[split] = state.digest  # One object instead of two equal ones; a Session has one for every Turn.
            return (chain[-1],)
        canonical = extend(state.digest, (message.exact for message in messages[split:]))
        return tuple(dict.fromkeys([canonical[-1] if canonical else state.digest, chain[-1]]))

    def commit(
        self, pending: PendingTurn, observation: Observation, generation: Generation, answer: Message, request_id: str
    ) -> State:
        """Add the observation (unless it is there) and the response, together. The only mutation of the tree."""
        parent = self._adopt(pending.parent)
        if pending.spelling is not None:
            _enter(self._named, pending.spelling, pending.observation or parent)
        observed = pending.observation or self._observe(parent, pending, observation)
        response = State(
            len(self.states),
            Kind.RESPONSE,
            observed,
            link(observed.digest, answer.exact),
            answer,
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
        start = self._start(request)
        chain = [start, *extend(start, (message.exact for message in request.messages))]
        state, reach = self._reach(chain, self._named)
        if reach < len(request.messages) and not self.strict:
            loose = [start, *extend(start, (message.lenient for message in request.messages))]
            candidate, lenient_reach = self._reach(loose, self._lenient_index())
            if lenient_reach > reach:
                state, reach = candidate, lenient_reach
        return state, reach

    def _start(self, request: ModelRequest) -> bytes:
        seed = (request.tools, request.template_kwargs)
        if (start := self._starts.get(seed)) is None:
            start = self._starts[seed] = digest(b"root", request.seed_digest)
        return start

    def _reach(self, chain: Sequence[bytes], index: Index) -> tuple[State | None, int]:
        for count in range(len(chain) - 1, -1, -1):
            if states := several(index.get(chain[count], ())):
                return max(states, key=lambda state: (state.is_response, state.delivered, state.index)), count
        return None, 0

    def _wider(self, exact: _Found, messages: tuple[Message, ...]) -> _Found | None:
        """A match that covers more than the ``exact`` one by overlooking what clients change in an answer's echo."""
        if self.strict or not _has_answer(messages, exact.split):
            return None
        start = exact.state.lenient
        loose = [start, *extend(start, (message.lenient for message in messages[exact.split :]))]
        found = self._longest(loose, exact.split, self._lenient_index())
        return found if found is not None and found.split > exact.split else None

    def _longest(self, chain: Sequence[bytes], offset: int, index: Index) -> _Found | None:
        """The State to continue; ``chain[n]`` is the digest of the first ``offset + n`` messages.

        Past the last message only answers and the root can be continued: an observation already ends in the
        generation prompt, so it serves only a request that ends exactly there.
        """
        for count in range(len(chain) - 1, -1, -1):
            named = several(index.get(chain[count], ()))
            whole = [s for s in named if s.kind is Kind.OBSERVATION and s.messages] if count == len(chain) - 1 else []
            if whole:
                return _Found(whole[-1], offset + count)
            if open_ended := [s for s in named if s.kind is not Kind.OBSERVATION]:
                return _Found(_latest(open_ended), offset + count, len(open_ended) > 1)
        return None

    def _adopt(self, parent: State) -> State:
        if parent.kind is not Kind.ROOT:
            return parent
        if known := several(self._named.get(parent.digest, ())):
            return known[0]
        parent.index = len(self.states)
        self._add(parent, [])
        return parent

    def _observe(self, parent: State, pending: PendingTurn, observation: Observation) -> State:
        """The observation of two parallel requests with the same history is one State."""
        for known in several(self._named.get(pending.names[0], ())):
            if known.parent is parent and known.kind is Kind.OBSERVATION and known.tokens == observation.ids:
                return known
        messages = pending.request.messages[pending.split :]
        observed = State(
            len(self.states),
            Kind.OBSERVATION,
            parent,
            pending.names[0],
            bare(messages),
            observation.ids,
        )
        self._add(observed, pending.names)
        return observed

    def _add(self, state: State, names: Sequence[bytes]) -> None:
        parent = state.parent
        if parent is not None:
            state.depth = parent.depth + len(state.messages)
            state.length = parent.length + len(state.tokens)
            parent.children = (*parent.children, state)
        self.states.append(state)
        for name in (state.digest, *names):
            _enter(self._named, name, state)
        if self._lenient is not None:
            _enter(self._lenient, state.lenient, state)

    def _lenient_index(self) -> Index:
        """States by lenient digest; built when a history first needs it, which most never do."""
        if self._lenient is None:
            self._lenient = {}
            for state in self.states:
                _enter(self._lenient, state.lenient, state)
        return self._lenient


def _enter(index: Index, name: bytes, state: State) -> None:
    states = several(index.get(name, ()))
    if state not in states:
        index[name] = bare((*states, state))


class _Found(NamedTuple):
    """A State that covers the first ``split`` messages, and whether equal siblings left a choice."""

    state: State
    split: int
    tied: bool = False


def _has_answer(messages: Sequence[Message], start: int) -> bool:
    return any(messages[index].role == "assistant" for index in range(start, len(messages)))


def _latest(states: Sequence[State]) -> State:
    """The answer delivered last; among undelivered ones the one committed last."""
    return max(states, key=lambda state: (state.delivered, state.index))
