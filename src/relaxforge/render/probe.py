"""The start-up probe: renders canned conversations and learns from the text what a template does and refuses."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from relaxforge.core.errors import RenderError
from relaxforge.core.messages import Message, Tool, ToolCall
from relaxforge.render.effort import learn_efforts, learn_switch
from relaxforge.render.levels import learn_levels
from relaxforge.render.parsers.think import opens_think
from relaxforge.render.properties import TemplateProperties
from relaxforge.render.shape import Notes, chat_messages
from relaxforge.render.template import ChatTemplate
from relaxforge.render.tokens import ControlTokens
from relaxforge.render.window import STAND_IN, Window, common_start

USER, USER2 = Message("user", "first question"), Message("user", "second question")
SYSTEM, SYSTEM2 = Message("system", "be brief"), Message("system", "be kind")
ANSWER, ANSWER2 = Message("assistant", "plain answer"), Message("assistant", "other answer")
STAND = Message("assistant", STAND_IN)
CALL = Message("assistant", tool_calls=(ToolCall("call_" + "1" * 24, "lookup", '{"city":"Paris"}'),))
CALLS = replace(CALL, tool_calls=(*CALL.tool_calls, ToolCall("call_" + "2" * 24, "measure", '{"unit":"metre"}')))
RESULT = Message("tool", "it rains", tool_call_id="call_" + "1" * 24)
TOOL = Tool("lookup", "look something up", '{"properties":{"city":{"type":"string"}},"type":"object"}')


def probe(
    template: ChatTemplate, control: ControlTokens, stop_tokens: Collection[str], kwargs: Mapping[str, Any]
) -> TemplateProperties:
    """Everything about ``template`` when it is rendered with ``kwargs``.

    ``stop_tokens`` are the spellings of the end tokens that the model's files name. Errors: ``RenderError`` when not
    even a single user message renders.
    """
    found = _Probe(template, control, stop_tokens, kwargs)
    if not found.shows([USER], USER.text):
        raise RenderError(f"the chat template does not show a plain user message: {found.words}")
    found.learn_generation_prompt()
    found.learn_closing()
    found.learn_tool_calls()
    found.learn_roles()
    found.learn_history()
    found.learn_reasoning()
    found.know(**learn_levels(Window(template, found.properties, control), kwargs))
    return found.properties


class _Probe:
    """The properties learned so far; each question is asked with what is known already, and without any folding."""

    def __init__(
        self, template: ChatTemplate, control: ControlTokens, stop_tokens: Collection[str], kwargs: Mapping[str, Any]
    ) -> None:
        self.properties = TemplateProperties()
        self.words = "it renders nothing"
        self._template = template
        self._control = control
        self._stop_tokens = stop_tokens
        self._kwargs = kwargs

    def text(
        self,
        messages: Sequence[Message],
        tools: tuple[Tool, ...] = (),
        *,
        prompt: bool = True,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str | None:
        """The rendered text, ``None`` when the template raises; ``kwargs`` win over those of the probe."""
        notes: Notes = {}
        shaped = chat_messages(messages, self.properties, self._control, notes)
        try:
            return self._template.render(shaped, tools, {**self._kwargs, **(kwargs or {})}, prompt=prompt)
        except RenderError as error:
            self.words = str(error)
            return None

    def tail(self, messages: Sequence[Message], *, prompt: bool = True) -> str:
        """The text behind the stand-in, empty when the template raises or does not show it."""
        text = self.text(messages, prompt=prompt)
        return text.rpartition(STAND_IN)[2] if text and STAND_IN in text else ""

    def shows(self, messages: Sequence[Message], *needles: str) -> bool:
        """Whether all ``needles`` appear, in this order."""
        return _in_order(self.text(messages) or "", needles)

    def adds(self, messages: Sequence[Message]) -> bool:
        """Whether ``messages`` appear behind a closed answer, in order."""
        tail = self.tail([USER, STAND, *messages])
        return tail.startswith(self.properties.closing) and _in_order(tail, [message.text for message in messages])

    def know(self, **learned: Any) -> None:
        self.properties = replace(self.properties, **learned)

    def learn_generation_prompt(self) -> None:
        closed, prompted = self.text([USER], prompt=False) or "", self.text([USER]) or ""
        opening = prompted[len(common_start(closed, prompted, self._control)) :]
        self.know(generation_prompt=opening, opens_think=opens_think(opening))

    def learn_closing(self) -> None:
        closed, opened = self.tail([USER, STAND], prompt=False), self.tail([USER, STAND])
        followed = self.tail([USER, STAND, USER2], prompt=False)
        common = common_start(opened, followed, self._control)
        closing = common_start(closed, common, self._control)
        self.know(closing=closing or (self._control.first(common) if closed else ""))

    def learn_tool_calls(self) -> None:
        shapes = product((False, True), ("mapping", "string"), (False, True))
        for null_content, arguments, short in shapes:
            self.know(null_call_content=null_content, arguments=arguments, short_call_ids=short)
            if _shows_call(self.text([USER, CALL]) or ""):
                break
        else:
            self.know(null_call_content=False, arguments="mapping", short_call_ids=False, tool_calls=False)
        call = CALL if self.properties.tool_calls else ANSWER
        odd = replace(CALL, tool_calls=(replace(CALL.tool_calls[0], arguments='"Paris"'),))
        self.know(
            tool_role=self.shows([USER, call, RESULT], RESULT.text),
            string_arguments=self.text([USER, odd]) is not None,
            parallel_calls=self.shows([USER, CALLS], "lookup", "measure"),
            tools=TOOL.name in (self.text([USER], (TOOL,)) or ""),
            call_closing=self._call_closing(),
        )

    def _call_closing(self) -> str:
        """How an answer with a call ends, where that is the usual closing or begins with a known end token."""
        arguments = f'{{"city":"{STAND_IN}"}}'
        call = replace(CALL, tool_calls=(replace(CALL.tool_calls[0], arguments=arguments),))
        closed, followed = self.tail([USER, call], prompt=False), self.tail([USER, call, RESULT])
        tail = common_start(closed, followed, self._control)
        if self.properties.closing and tail.endswith(self.properties.closing):
            return self.properties.closing
        last = self._control.last(tail)
        return tail[tail.rindex(last) :] if last in self._stop_tokens else ""

    def learn_roles(self) -> None:
        later = ([SYSTEM, USER2], [USER2, SYSTEM], [SYSTEM])
        call = CALL if self.properties.tool_calls else ANSWER
        self.know(
            system=self.shows([SYSTEM, USER], SYSTEM.text, USER.text),
            second_system=self.shows([SYSTEM, SYSTEM2, USER], SYSTEM.text, SYSTEM2.text, USER.text),
            later_system=all(self.adds(messages) for messages in later),
            repeats_user=self.adds([USER2, USER]) and self.shows([USER, USER2], USER.text, USER2.text),
            repeats_assistant=self.adds([ANSWER, USER2]) and self.shows([USER, ANSWER, ANSWER2, USER2], ANSWER2.text),
            assistant_first=self.shows([ANSWER, USER], ANSWER.text, USER.text),
            empty_answer=self.shows([USER, replace(ANSWER, content=""), USER2], USER2.text),
            user_after_tool=self.shows([USER, call, RESULT, USER2], RESULT.text, USER2.text),
        )

    def learn_history(self) -> None:
        thought = replace(ANSWER, reasoning="because of that")
        self.know(
            keeps_reasoning=self.shows([USER, thought, USER2], thought.reasoning, thought.text),
            append_only=all(self._appends(lead, tools) for lead, tools in product(((), (SYSTEM,)), ((), (TOOL,)))),
        )

    def learn_reasoning(self) -> None:
        def text(kwargs: Mapping[str, Any]) -> str | None:
            return self.text([USER], kwargs=kwargs)

        self.know(thinking_switch=learn_switch(text), efforts=learn_efforts(text))

    def _appends(self, lead: tuple[Message, ...], tools: tuple[Tool, ...]) -> bool:
        """Whether the prompt of the second question continues the prompt of the first one and its answer."""
        if (lead and not self.properties.system) or (tools and not self.properties.tools):
            return True
        asked = self.text([*lead, USER], tools) or ""
        again = self.text([*lead, USER, ANSWER, USER2], tools) or ""
        return again.startswith(asked + ANSWER.text + self.properties.closing)


def _in_order(text: str, needles: Sequence[str]) -> bool:
    position = 0
    for needle in needles:
        position = text.find(needle, position)
        if position < 0:
            return False
        position += len(needle)
    return True


def _shows_call(text: str) -> bool:
    """Whether the canned call appears with its arguments spelled once, neither as Python nor as JSON within JSON."""
    mangled = "{'city'" in text or '\\"city' in text
    return not mangled and re.search(r"lookup.*city.*Paris", text, re.DOTALL) is not None
