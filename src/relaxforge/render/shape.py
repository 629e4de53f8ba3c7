"""Canonical messages in the shape that one chat template reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from relaxforge.core import strict_json
from relaxforge.core.errors import ImageError
from relaxforge.core.messages import Message, ToolCall
from relaxforge.render.properties import TemplateProperties
from relaxforge.render.template import ChatDict
from relaxforge.render.tokens import ControlTokens

Notes = dict[str, int]
"""What rendering had to change, counted by cause."""

_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")


def note(notes: Notes, cause: str, count: int = 1) -> None:
    notes[cause] = notes.get(cause, 0) + count


def chat_messages(
    messages: Sequence[Message], properties: TemplateProperties, control: ControlTokens, notes: Notes
) -> list[ChatDict]:
    """Message dicts for the template, one per message. Errors: ``RenderError`` for content it cannot show."""
    return [_chat_message(message, properties, control, notes) for message in messages]


def _chat_message(message: Message, properties: TemplateProperties, control: ControlTokens, notes: Notes) -> ChatDict:
    if message.images:
        raise ImageError(message.images[0].where)
    text = message.text
    if message.role != "assistant":
        if spelled := control.count(text):
            note(notes, "special_tokens_in_text", spelled)
            text = control.treat(text)
        shaped: ChatDict = {"role": message.role, "content": text}
        if message.tool_call_id is not None:
            shaped["tool_call_id"] = call_id(message.tool_call_id, properties, notes)
        return shaped
    shaped = {"role": "assistant", "content": text}
    if message.reasoning:
        shaped["reasoning_content"] = message.reasoning
    if message.tool_calls:
        shaped["content"] = text or call_content(properties)
        shaped["tool_calls"] = [_call(call, properties, notes) for call in message.tool_calls]
    return shaped


def call_content(properties: TemplateProperties) -> str | None:
    """The content of a message that is only tool calls."""
    return None if properties.null_call_content else ""


def call_id(given: str, properties: TemplateProperties, notes: Notes) -> str:
    """``given``, or nine characters that follow from it where the template takes no others."""
    if not properties.short_call_ids or _SHORT_ID.fullmatch(given):
        return given
    note(notes, "tool_call_id_shortened")
    return blake2b(given.encode("utf-8", "replace"), digest_size=5).hexdigest()[:9]


def chat_call(given_id: str, name: str, arguments: Any) -> ChatDict:
    return {"id": given_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _call(call: ToolCall, properties: TemplateProperties, notes: Notes) -> ChatDict:
    return chat_call(call_id(call.id, properties, notes), call.name, _arguments(call.arguments, properties, notes))


def _arguments(text: str, properties: TemplateProperties, notes: Notes) -> Any:
    """Arguments as the template wants them; what is not a JSON object is kept as a string or wrapped in an object."""
    try:
        value = strict_json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value if properties.arguments == "mapping" else text
    note(notes, "tool_arguments_not_an_object")
    return text if properties.string_arguments else {"arguments": text}
