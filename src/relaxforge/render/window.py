"""The text that a Turn adds behind an answer, learned by rendering a window around a stand-in for that answer.

The stand-in is an assistant message whose content, or the last argument of whose last tool call, is a random word. What
the template puts behind that word is the end of the turn, its separators, the new messages and the generation prompt.
The answer itself is never rendered: its sampled ids stand in the lineage.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from relaxforge.core.errors import RenderError
from relaxforge.core.messages import Message, ModelRequest, Tool
from relaxforge.render.fold import fold
from relaxforge.render.properties import Level, TemplateProperties
from relaxforge.render.shape import Notes, call_content, call_id, chat_call, chat_messages, note
from relaxforge.render.template import ChatDict, ChatTemplate
from relaxforge.render.tokens import ControlTokens

STAND_IN = "ANSWER" + secrets.token_hex(16)
"""No conversation can contain it: random for each process, so that nobody can write it into a message."""

LEAD: ChatDict = {"role": "user", "content": "Hello"}
"""The question that the stand-in answers when the real one is not rendered."""


@dataclass(frozen=True, slots=True)
class Delta:
    """``text`` begins with ``closing``: what belongs to the answer's turn, and may have been sampled already."""

    text: str
    closing: str


@dataclass(frozen=True, slots=True)
class Window:
    """Renders deltas of one template. Errors everywhere: ``RenderError`` with the template's words."""

    template: ChatTemplate
    properties: TemplateProperties
    control: ControlTokens

    def whole(self, request: ModelRequest, kwargs: Mapping[str, Any], notes: Notes) -> str:
        """The text of the whole conversation, with the generation prompt."""
        shaped = chat_messages(request.messages, self.properties, self.control, notes)
        return self.template.render(fold(shaped, self.properties, notes), request.tools, kwargs)

    def delta(
        self, request: ModelRequest, split: int, kwargs: Mapping[str, Any], notes: Notes, level: Level | None = None
    ) -> Delta:
        """What ``messages[split:]`` and the generation prompt add behind the answer ``messages[split - 1]``."""
        shaped = chat_messages(request.messages[split:], self.properties, self.control, notes)
        suffix = fold(shaped, self.properties, notes, after_answer=True)
        view = self._view(request, split, suffix, kwargs, level)
        answer = request.messages[split - 1]
        if suffix and suffix[0]["role"] == "tool" and answer.tool_calls and self.properties.tool_calls:
            found = self._behind_call(view, answer)
            if found is not None:
                return found
        tail = self._behind(view, {"role": "assistant", "content": STAND_IN}, suffix)
        if tail is None:
            raise RenderError("the chat template drops the assistant message before the new messages")
        if not tail.startswith(self.properties.closing):
            note(notes, "closing_unrecognised")
            return Delta(tail, "")
        return Delta(tail, self.properties.closing)

    def _view(
        self,
        request: ModelRequest,
        split: int,
        suffix: list[ChatDict],
        kwargs: Mapping[str, Any],
        level: Level | None,
    ) -> _View:
        if level is None:
            results = any(message["role"] == "tool" for message in suffix)
            level = self.properties.tool_level if results else self.properties.level
        if level == "bare":
            return _View([LEAD], (), suffix, kwargs)
        if level == "window":
            leading = tuple(takewhile(lambda message: message.role == "system", request.messages))
            head = [*chat_messages(leading, self.properties, self.control, {}), LEAD]
        else:
            head = chat_messages(request.messages[: split - 1], self.properties, self.control, {})
        return _View(head, request.tools, suffix, kwargs)

    def _behind_call(self, view: _View, answer: Message) -> Delta | None:
        """The delta behind an answer that ends in a tool call, ``None`` when the template does not show that call."""
        stand_in = self._calling(answer)
        tail = self._behind(view, stand_in, view.suffix)
        if tail is None:
            return None
        closing = self.properties.call_closing
        if closing and (start := tail.find(closing)) >= 0:
            return Delta(tail[start:], closing)
        closed = self._behind(view, stand_in, [], prompt=False) or ""
        own = common_start(closed, tail, self.control)
        closing = self.properties.closing if own.endswith(self.properties.closing) else ""
        return Delta(tail[len(own) - len(closing) :], closing)

    def _calling(self, answer: Message) -> ChatDict:
        """The answer's tool calls, by id and name, with the stand-in as the last argument."""
        wanted = self.properties
        given: list[dict[str, str]] = [{}, {"value": STAND_IN}]
        shown: list[Any] = [json.dumps(value) for value in given] if wanted.arguments == "string" else list(given)
        calls = answer.tool_calls if wanted.parallel_calls else answer.tool_calls[-1:]
        dicts = [chat_call(call_id(call.id, wanted, {}), call.name, shown[0]) for call in calls]
        dicts[-1]["function"]["arguments"] = shown[1]
        return {"role": "assistant", "content": call_content(wanted), "tool_calls": dicts}

    def _behind(self, view: _View, stand_in: ChatDict, suffix: list[ChatDict], *, prompt: bool = True) -> str | None:
        """Text behind the stand-in, ``None`` when the template does not show it."""
        history = fold([*view.head, stand_in], self.properties, {})
        text = self.template.render(history + suffix, view.tools, view.kwargs, prompt=prompt)
        _, found, tail = text.rpartition(STAND_IN)
        return tail if found else None


@dataclass(frozen=True, slots=True)
class _View:
    """What is rendered around the stand-in: message dicts before it, folded ones behind it."""

    head: list[ChatDict]
    tools: tuple[Tool, ...]
    suffix: list[ChatDict]
    kwargs: Mapping[str, Any]


def common_start(left: str, right: str, control: ControlTokens) -> str:
    """The longest common start of two texts that does not end inside a control token."""
    length = next(
        (at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
    return left[: min(control.outside(left, length), control.outside(right, length))]
