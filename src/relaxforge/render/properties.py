"""What a chat template does and refuses, as the start-up probe found it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

Level = Literal["bare", "window", "full"]


@dataclass(frozen=True, slots=True)
class TemplateProperties:
    """The defaults describe a template that takes everything. ``described`` is for people."""

    level: Level = "full"
    """What new messages without tool results are rendered with: `bare` a stand-in for the last answer, `window` also
    the leading system messages and tools, `full` the whole conversation."""
    level_reason: str = ""
    """Why a cheaper level does not do; empty for `bare`."""
    tool_level: Level = "full"
    """The same for new messages with tool results among them."""
    tool_level_reason: str = ""
    """Why a cheaper tool level does not do; empty for `bare`."""

    generation_prompt: str = ""
    """Text that opens the answer."""
    opens_think: bool = False
    """The generation prompt opens a think block."""
    closing: str = ""
    """Text after an answer: the end of the turn and the separators behind it."""
    call_closing: str = ""
    """The same after an answer that ends in a tool call; empty where it must be found out for each answer."""

    append_only: bool = True
    """A longer conversation starts with the prompt of the shorter one and its answer (one without reasoning)."""
    keeps_reasoning: bool = True
    """Reasoning of past answers is rendered."""

    system: bool = True
    """Takes a leading system message."""
    second_system: bool = True
    """Takes two leading system messages."""
    later_system: bool = True
    """Takes a system message after the conversation has begun, and renders it there."""
    repeats_user: bool = True
    """Takes two user messages in a row."""
    repeats_assistant: bool = True
    """Takes an assistant message after an assistant message."""
    assistant_first: bool = True
    """Takes a conversation that begins with an assistant message."""
    empty_answer: bool = True
    """Takes an assistant message without any content."""
    user_after_tool: bool = True
    """Takes a user message right after a tool result."""

    tools: bool = True
    """Shows the offered tools to the model."""
    tool_role: bool = True
    """Takes tool messages."""
    tool_calls: bool = True
    """Renders the tool calls of past answers."""
    parallel_calls: bool = True
    """Takes several tool calls in one message."""
    arguments: Literal["mapping", "string"] = "mapping"
    """The shape in which it wants tool arguments."""
    string_arguments: bool = True
    """Takes arguments that are a plain string without failing."""
    null_call_content: bool = False
    """Wants null as the content of a message that is only tool calls, instead of an empty string."""
    short_call_ids: bool = False
    """Takes only tool-call ids of nine letters or digits."""

    thinking_switch: str = ""
    """The template argument that turns reasoning on and off; empty when there is none."""
    efforts: tuple[str, ...] = ()
    """The values of the template argument `reasoning_effort` that it tells apart; none when it does not read it."""
    tool_call_parser: str = "none"
    """What reads tool calls out of answers, and whether `auto` chose it."""
    reasoning_parser: str = "none"
    """What reads reasoning out of answers, and whether `auto` chose it."""

    def described(self) -> list[tuple[str, str]]:
        """(name, value) of every property, for a table."""
        return [(item.name, _shown(getattr(self, item.name))) for item in fields(self)]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value)
    return repr(value)[1:-1] if isinstance(value, str) else str(value)
