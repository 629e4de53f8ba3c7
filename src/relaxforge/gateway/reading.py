"""One request while it is read: what it takes from its Session's memory, and what it will add once it is accepted."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from relaxforge.core import strict_json
from relaxforge.core.messages import Api, Message, Tool
from relaxforge.core.ports import SessionDoor
from relaxforge.gateway.body import Body, parse_value

Projected = Message | tuple[Message, ...]
Projection = Callable[[Any, str, Counter[str]], Projected]
"""One parsed element of a history, its path in the request, and what was noted, to what it means."""

# Raw bytes are only recognised here, identity is Message.exact; hashing a long history with a cryptographic digest was
# a third of a request's cost. The seed is drawn per process, so that nobody can prepare two messages with one key.
_SEED = secrets.randbits(62)
_SALT: dict[Api, int] = {"chat": 0, "responses": 1, "messages": 2}
"""Equal bytes may mean different things in different APIs."""

_NEIGHBOURS = re.compile("aa+")


class Reading:
    """Nothing reaches the Session before ``keep``: a request that is refused leaves no trace.

    ``noted`` counts, by cause, what had to be changed or left out. ``nothing`` lists the elements of the history, by
    index, that mean no message.
    """

    def __init__(self, api: Api, door: SessionDoor) -> None:
        self.noted: Counter[str] = Counter()
        self.nothing: list[int] = []
        self._seed = _SEED + _SALT[api]
        self._door = door
        self._messages: dict[bytes, Projected] = {}
        self._tools: dict[bytes, tuple[Tool, ...]] = {}
        self._fields: set[str] = set()

    def history(self, raws: Sequence[bytes], field: str, project: Projection) -> tuple[list[Message], list[bytes]]:
        """The canonical history and the keys of its raw elements; only elements not seen before are parsed."""
        known, seed = self._door.known, self._seed
        history: list[Message] = []
        keys = [xxh3_128_digest(raw, seed) for raw in raws]
        for index, key in enumerate(keys):
            found = known.get(key)
            if found is None:
                found = self._learn(key, raws[index], f"{field}[{index}]", project)
            if type(found) is Message:
                history.append(found)
            elif found:
                history.extend(found)  # type: ignore[arg-type]  # the checker does not narrow by exact type
            else:
                self.nothing.append(index)
        return history, keys

    def field(self, body: Body, name: str, project: Projection) -> tuple[Message, ...]:
        """What a field that is not a list of messages adds to the history; nothing when it is absent."""
        raw = body.raw.get(name)
        if raw is None or raw == b"null":
            return ()
        key = xxh3_128_digest(raw, self._seed ^ xxh3_64_intdigest(name.encode()))  # One text may stand in two fields.
        found = self._door.known.get(key)
        if found is None:
            found = self._learn(key, raw, name, project)
        return (found,) if isinstance(found, Message) else found

    def merged(self, history: Sequence[Message]) -> tuple[Message, ...]:
        """Neighbouring assistant messages joined into one, for APIs that spread an answer over several elements."""
        merged, done = [], 0
        # One letter a role, so that the search for neighbours costs little in a long history.
        for run in _NEIGHBOURS.finditer("".join([message.role[0] for message in history])):
            merged += [*history[done : run.start()], self._joined(history[run.start() : run.end()])]
            done = run.end()
        return (*merged, *history[done:])

    def tools(
        self, raw: bytes, where: str, project: Callable[[Any, str, Counter[str]], tuple[Tool, ...]]
    ) -> tuple[Tool, ...]:
        """A whole tool list; an unchanged one is not read again."""
        key = xxh3_128_digest(raw, self._seed)
        tools = self._door.known_tools.get(key)
        if tools is None:
            tools = self._tools[key] = project(parse_value(raw, where), where, self.noted)
        return tools

    def attach_tools(self, key: bytes, tools: tuple[Tool, ...]) -> None:
        """Remember that the raw element ``key`` of the history brought ``tools``."""
        self._tools[key] = tools

    def attached_tools(self, key: bytes) -> tuple[Tool, ...] | None:
        return self._door.known_tools.get(key, self._tools.get(key))

    def ignored(self, body: Body, read: frozenset[str]) -> None:
        """Note every field outside ``read`` that carries a value."""
        for name in body.ignored(read):
            self.ignore(name)

    def ignore(self, name: str) -> None:
        """Note a field that does nothing here, once per Session."""
        if name not in self._door.known_fields:
            self._fields.add(name)

    def keep(self) -> Mapping[str, int]:
        """The request is accepted: the Session learns what was new. Returns what is to be reported."""
        self._door.known.update(self._messages)
        self._door.known_tools.update(self._tools)
        self._door.known_fields.update(self._fields)
        return self.notices()

    def notices(self) -> Mapping[str, int]:
        return +(self.noted + Counter(f"ignored_field:{name[:64]}" for name in self._fields))

    def _learn(self, key: bytes, raw: bytes, where: str, project: Projection) -> Projected:
        if (twice := self._messages.get(key)) is not None:
            return twice
        self.noted["lone_surrogate"] += lone_surrogates(bytes(raw))
        means = project(parse_value(raw, where), where, self.noted)
        held: Projected = self.one(means) if isinstance(means, Message) else tuple(map(self.one, means))
        self._messages[key] = held
        return held

    def one(self, message: Message) -> Message:
        """The object that already stands for an equal message, if there is one."""
        held = self._door.known.get(message.exact) or self._messages.setdefault(message.exact, message)
        assert isinstance(held, Message)  # noqa: S101  (for the type checker: under its own digest lies one message)
        return held

    def _joined(self, run: Sequence[Message]) -> Message:
        key = xxh3_128_digest(b"".join(message.exact for message in run), self._seed)
        found = self._door.known.get(key) or self._messages.get(key)
        if not isinstance(found, Message):
            found = self._messages[key] = self.one(_join(run))
        return found


def lone_surrogates(raw: bytes) -> int:
    """How many escaped lone surrogates JSON text holds, those already replaced included."""
    return strict_json.replace_lone_surrogates(raw).count(strict_json.REPLACEMENT)


def _join(run: Sequence[Message]) -> Message:
    return Message(
        "assistant",
        "".join(message.text for message in run),
        "\n\n".join(message.reasoning for message in run if message.reasoning),
        tuple(call for message in run for call in message.tool_calls),
    )
