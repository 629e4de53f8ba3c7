"""Conversations that a template refuses, folded into ones that it takes: deterministic, local, and counted.

Nothing is ever moved across an assistant message that was sampled here, so folding a suffix alone gives the same as
folding it behind its history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from relaxforge.render.parsers import hermes
from relaxforge.render.properties import TemplateProperties
from relaxforge.render.shape import Notes, note
from relaxforge.render.template import ChatDict

BLANK_LINE = "\n\n"


def fold(
    messages: Iterable[ChatDict], properties: TemplateProperties, notes: Notes, *, after_answer: bool = False
) -> list[ChatDict]:
    """``messages`` as ``properties`` allow them; ``after_answer`` says that they follow an assistant message."""
    folded = _Folded(properties, notes, after_answer)
    for message in messages:
        for adapted in _adapted(message, properties, notes):
            folded.take(adapted)
    return folded.finish()


def _adapted(message: ChatDict, properties: TemplateProperties, notes: Notes) -> Iterator[ChatDict]:
    """One message in roles and calls that the template knows."""
    calls = message.get("tool_calls")
    if message["role"] == "tool" and not properties.tool_role:
        note(notes, "tool_result_as_user")
        yield {"role": "user", "content": message["content"]}
    elif calls and not properties.tool_calls:
        note(notes, "tool_call_as_text", len(calls))
        spelled = [_spelled(call["function"]) for call in calls]
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        yield {**rest, "content": "\n".join(filter(None, [message["content"], *spelled]))}
    elif calls and len(calls) > 1 and not properties.parallel_calls:
        note(notes, "parallel_calls_split", len(calls) - 1)
        yield {**message, "tool_calls": calls[:1]}
        nothing = None if message["content"] is None else ""
        for call in calls[1:]:
            yield {"role": "assistant", "content": nothing, "tool_calls": [call]}
    elif message["role"] == "assistant" and not (calls or message["content"] or properties.empty_answer):
        note(notes, "empty_answer_padded")
        yield {**message, "content": " "}
    else:
        yield message


def _spelled(function: dict[str, Any]) -> str:
    arguments = function["arguments"]
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'{hermes.OPEN}\n{{"name": {name}, "arguments": {shown}}}\n{hermes.CLOSE}'


class _Folded:
    """The folded conversation while it grows. ``held`` is system text that waits for the next user message."""

    def __init__(self, properties: TemplateProperties, notes: Notes, after_answer: bool) -> None:
        self._properties = properties
        self._notes = notes
        self._out: list[ChatDict] = []
        self._held: list[str] = []
        self._before = "assistant" if after_answer else "nothing"

    def take(self, message: ChatDict) -> None:
        role = message["role"]
        if role == "system":
            self._system(message)
        elif role == "user":
            self._user(message)
        else:
            self._release()
            if role == "assistant":
                self._make_room_for_assistant()
            self._out.append(message)

    def finish(self) -> list[ChatDict]:
        self._release()
        return self._out

    @property
    def _last(self) -> str:
        return self._out[-1]["role"] if self._out else self._before

    def _system(self, message: ChatDict) -> None:
        allowed = self._properties
        if self._last == "nothing" and not self._held:
            fits = allowed.system
        elif self._last == "system" and all(other["role"] == "system" for other in self._out):
            if not allowed.second_system:
                note(self._notes, "system_merged")
                self._out[-1] = _joined(self._out[-1], message["content"])
                return
            fits = True
        else:
            fits = allowed.later_system and not self._held
        if fits:
            self._out.append(message)
        else:
            note(self._notes, "system_folded")
            self._held.append(message["content"])

    def _user(self, message: ChatDict) -> None:
        if self._held:
            message = {**message, "content": BLANK_LINE.join([*self._held, message["content"]])}
            self._held.clear()
        if self._last == "user" and not self._properties.repeats_user:
            note(self._notes, "user_merged")
        elif self._last == "tool" and not self._properties.user_after_tool:
            note(self._notes, "user_folded_into_tool_result")
        else:
            self._out.append(message)
            return
        self._out[-1] = _joined(self._out[-1], message["content"])

    def _release(self) -> None:
        """System text with no user message to go into becomes one of its own."""
        if self._held:
            text = BLANK_LINE.join(self._held)
            self._held.clear()
            self._user({"role": "user", "content": text})

    def _make_room_for_assistant(self) -> None:
        last, allowed = self._last, self._properties
        refused = (last == "assistant" and not allowed.repeats_assistant) or (
            last in ("nothing", "system") and not allowed.assistant_first
        )
        if refused:
            note(self._notes, "empty_user_added")
            self._out.append({"role": "user", "content": ""})


def _joined(message: ChatDict, text: str) -> ChatDict:
    return {**message, "content": message["content"] + BLANK_LINE + text}
