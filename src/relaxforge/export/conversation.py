"""The conversation that a Session is about, out of the forest in its dump line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

StateRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in Chat Completions shape, first to last, and the tools that the model was offered."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Forest:
    """The committed States of a dump line, by name, in order of commit."""

    line: Mapping[str, Any]
    states: dict[str, StateRow] = field(init=False)

    def __post_init__(self) -> None:
        self.states = {state["state"]: state for state in self.line.get("forest") or ()}

    def lineage(self, name: str | None) -> list[StateRow]:
        """The States from the first message to the one that is named."""
        path: list[StateRow] = []
        while name is not None and name in self.states:
            path.append(self.states[name])
            name = self.states[name]["parent"]
        return path[::-1]

    def leaves(self) -> list[str]:
        """The States that nothing continues, the main one first, then in order of commit."""
        parents = {state["parent"] for state in self.states.values()}
        ends = [name for name in self.states if name not in parents]
        main = self.main()
        return ([main] if main else []) + [name for name in ends if name != main]

    def main(self) -> str | None:
        """The State that speaks for the Session: the exported one, else the end of the longest first conversation."""
        samples = [sample for sample in self.line.get("samples") or () if sample["state"] in self.states]
        if samples:
            return str(next((sample for sample in samples if sample["reward"] is not None), samples[0])["state"])
        return self._longest_first()

    def _longest_first(self) -> str | None:
        """The last answer of the longest conversation that goes on from the very first State."""
        depth: dict[str, int] = {}
        for name, state in self.states.items():
            if not depth:
                depth[name] = 1
            elif state["parent"] in depth:
                depth[name] = depth[state["parent"]] + 1
        answers = [name for name in depth if self.states[name]["kind"] == "response"]
        return max(answers, key=depth.__getitem__, default=None)

    def tools(self, lineage: Sequence[StateRow]) -> list[dict[str, Any]]:
        """The tools that the first request of a lineage offered."""
        sets = self.line.get("tools") or ()
        place = lineage[0].get("tools") if lineage else None
        return sets[place] if place is not None and place < len(sets) else []


def messages_of(lineage: Iterable[StateRow]) -> list[dict[str, Any]]:
    """All messages of a lineage."""
    return [message for state in lineage for message in messages_in(state)]


def messages_in(state: StateRow) -> list[dict[str, Any]]:
    """The messages that one State adds."""
    message = state["message"]
    return message if isinstance(message, list) else [message]


def conversation_of(session: bytes | None) -> Conversation | None:
    """The main conversation of a stored dump line; ``None`` when there is none, or none that can be read."""
    line = read_session(session)
    if line is None:
        return None
    forest = Forest(line)
    lineage = forest.lineage(forest.main())
    return Conversation(messages_of(lineage), forest.tools(lineage)) if lineage else None


def read_session(session: bytes | None) -> dict[str, Any] | None:
    """A stored dump line; ``None`` when it is not there or damaged."""
    try:
        return msgspec.json.decode(session, type=dict) if session else None
    except msgspec.DecodeError:
        return None
