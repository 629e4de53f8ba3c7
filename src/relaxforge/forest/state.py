"""State: one committed conversation, stored as what it adds to its parent."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from relaxforge.core.messages import Message
from relaxforge.core.turns import FinishReason, VersionSpan, log_probs, token_ids
from relaxforge.forest.chain import link
from relaxforge.forest.several import bare, several


class Kind(StrEnum):
    ROOT = "root"
    """Technical start of a subtree: one set of tools and template arguments, no tokens."""
    OBSERVATION = "observation"
    """Messages the agent wrote, rendered, plus the generation prompt; mask 0."""
    RESPONSE = "response"
    """Exactly what the model sampled, end token included; mask 1."""


_NO_LOGPROBS = log_probs()  # One for all observations, which never get any.


@dataclass(slots=True, eq=False)
class State:
    """A node of the forest. Everything but the delivery marks is fixed once it is committed.

    ``digest`` chains the parent's digest with the messages added here, so it names the whole conversation; ``lenient``
    does the same over the lenient digests, and is kept in ``lenient_name`` once it was asked for. ``added`` are the
    ``messages``, bare where it is one. ``depth`` counts the messages, ``length`` the tokens, of the conversation up to
    here. ``delivered`` is 0 until the answer was written to
    its client; then it is the position in the order of deliveries.
    """

    index: int
    kind: Kind
    parent: State | None
    digest: bytes
    added: Message | tuple[Message, ...] = ()
    tokens: array[int] = field(default_factory=token_ids)
    logprobs: array[float] = field(default_factory=lambda: _NO_LOGPROBS)
    versions: tuple[VersionSpan, ...] = ()
    finish: FinishReason | None = None
    request_id: str | None = None
    delivered: int = 0
    depth: int = 0
    length: int = 0
    lenient_name: bytes = b""
    _below: State | tuple[State, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """What this State adds to the conversation of its parent."""
        return several(self.added)

    @property
    def children(self) -> tuple[State, ...]:
        """What continues this State, oldest first."""
        return several(self._below)

    @children.setter
    def children(self, states: tuple[State, ...]) -> None:
        self._below = bare(states)

    @property
    def name(self) -> str:
        """The State as dumps and errors call it: its number in the Session and the start of its digest."""
        return f"s{self.index}-{self.digest[:4].hex()}"

    @property
    def is_response(self) -> bool:
        return self.kind is Kind.RESPONSE

    @property
    def reached_agent(self) -> bool:
        """Whether the agent read this answer: it was written completely, or a later request continues it."""
        return bool(self.delivered or self.children)

    @property
    def lenient(self) -> bytes:
        """As ``digest``, over lenient digests; computed for the whole lineage when it is first asked for."""
        if not self.lenient_name:
            unknown = []
            state = self
            while not state.lenient_name and state.parent is not None:
                unknown.append(state)
                state = state.parent
            name = state.lenient_name or state.digest
            for below in reversed(unknown):
                for message in below.messages:
                    name = link(name, message.lenient)
                below.lenient_name = name
            self.lenient_name = name
        return self.lenient_name

    def lineage(self) -> list[State]:
        """The States from the root to here, root left out."""
        path = list(self._upwards())
        path.reverse()
        return path

    def _upwards(self) -> Iterator[State]:
        state: State | None = self
        while state is not None and state.kind is not Kind.ROOT:
            yield state
            state = state.parent

    def lineage_ids(self) -> array[int]:
        """All token ids of the conversation up to here."""
        ids = token_ids()
        for state in self.lineage():
            ids.extend(state.tokens)
        return ids

    def conversation(self, start: int = 0) -> tuple[Message, ...]:
        """The messages of the conversation up to here, from the ``start``-th on."""
        newest_first: list[Message] = []
        for state in self._upwards():
            if state.depth <= start:
                break
            newest_first += reversed(state.messages)
        return tuple(reversed(newest_first[: self.depth - start]))
