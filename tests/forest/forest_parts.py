"""Short spellings for conversations, and one Turn as the conductor takes it: begin, render, generate, commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

from relaxforge.core.messages import Message, ModelRequest, RetryHint, Tool, ToolCall
from relaxforge.core.turns import FinishReason, Generation, Observation, VersionSpan, log_probs, token_ids
from relaxforge.forest.forest import PendingTurn, SessionForest
from relaxforge.forest.state import State

SEARCH = Tool("search", "Finds pages", '{"type":"object"}')


def system(text: str) -> Message:
    return Message("system", text)


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str = "", *, reasoning: str = "", call: str | None = None) -> Message:
    calls = (ToolCall(call, "search", '{"q":"x"}'),) if call is not None else ()
    return Message("assistant", text, reasoning, calls)


def tool(text: str, call: str) -> Message:
    return Message("tool", text, tool_call_id=call)


def request(*messages: Message, tools: tuple[Tool, ...] = (), kwargs: str = "{}") -> ModelRequest:
    return ModelRequest("chat", "model", messages, RetryHint(b"body"), tools, kwargs)


def render(pending: PendingTurn) -> Observation:
    """Any rendering does for the forest, as long as equal messages give equal ids."""
    if pending.observation is not None:
        return Observation(pending.observation.tokens)
    new = pending.request.messages[pending.split :]
    return Observation(token_ids([byte for message in new for byte in message.exact[:3]] + [1000]))


def generation(
    ids: Iterable[int], *, versions: Sequence[int] = (0,), finish: FinishReason = FinishReason.STOP
) -> Generation:
    """Sampled ``ids``; with several weight versions, each but the last sampled one token."""
    tokens = token_ids(ids)
    ends = [*range(1, len(versions)), len(tokens)]
    spans = [VersionSpan(version, end - 1, end) for version, end in zip(versions[:-1], ends, strict=False)]
    spans.append(VersionSpan(versions[-1], len(versions) - 1, len(tokens)))
    return Generation(tokens, log_probs(-token / 1000 for token in tokens), tuple(spans), finish)


class Talk:
    """A SessionForest with somebody talking to it. Answers get ids that nobody else gets, unless told."""

    def __init__(self, *, strict: bool = False) -> None:
        self.forest = SessionForest(strict=strict)
        self._fresh = count(1)

    def say(
        self,
        asked: ModelRequest,
        answer: str | Message = "ok",
        ids: Sequence[int] | None = None,
        *,
        delivered: bool = True,
        finish: FinishReason = FinishReason.STOP,
        versions: Sequence[int] = (0,),
    ) -> State:
        """One whole Turn."""
        pending = self.forest.begin(asked)
        return self.finish(pending, answer, ids, delivered=delivered, finish=finish, versions=versions)

    def finish(
        self,
        pending: PendingTurn,
        answer: str | Message = "ok",
        ids: Sequence[int] | None = None,
        *,
        delivered: bool = True,
        finish: FinishReason = FinishReason.STOP,
        versions: Sequence[int] = (0,),
    ) -> State:
        number = next(self._fresh)
        message = Message("assistant", answer) if isinstance(answer, str) else answer
        sampled = generation(ids or [number, number + 1, 2], versions=versions, finish=finish)
        state = self.forest.commit(pending, render(pending), sampled, message, f"r{number}")
        if delivered:
            self.forest.deliver(state)
        return state
