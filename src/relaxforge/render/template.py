"""The chat template of a model as text in, text out; transformers' own Jinja environment is the truth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

from relaxforge.core.errors import RenderError
from relaxforge.core.messages import Tool, chat_tool
from relaxforge.render.config import RESERVED_ARGUMENTS

ChatDict = dict[str, Any]
"""One message in the shape that chat templates read."""


class ChatTemplate:
    """Renders message dicts. A tokenizer may bring a second template for conversations with tools."""

    def __init__(self, plain: str, with_tools: str, special_tokens: Mapping[str, str]) -> None:
        self._plain = plain
        self._with_tools = with_tools
        self._special_tokens = dict(special_tokens)
        self.source = plain if plain == with_tools else plain + with_tools

    def render(
        self, messages: Sequence[ChatDict], tools: tuple[Tool, ...], kwargs: Mapping[str, Any], *, prompt: bool = True
    ) -> str:
        """The text of ``messages``, with the generation prompt when ``prompt``.

        Errors: ``RenderError`` with the template's own words.
        """
        try:
            rendered, _ = render_jinja_template(
                conversations=[messages],
                tools=template_tools(tools) or None,
                chat_template=self._with_tools if tools else self._plain,
                add_generation_prompt=prompt,
                **{**self._special_tokens, **kwargs},
            )
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            raise RenderError(f"the chat template refuses this conversation: {error}") from error
        except RecursionError:
            raise RenderError("the chat template refuses this conversation: nested too deeply") from None
        return rendered[0]  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def template_tools(tools: tuple[Tool, ...]) -> tuple[ChatDict, ...]:
    return tuple(chat_tool(tool) for tool in tools)


@lru_cache(maxsize=64)
def template_kwargs(text: str) -> Mapping[str, Any]:
    """The template arguments of a request, from their JSON text; read only. Errors: ``RenderError``."""
    kwargs: dict[str, Any] = json.loads(text)
    if reserved := RESERVED_ARGUMENTS & kwargs.keys():
        raise RenderError(f"chat_template_kwargs may not set {', '.join(sorted(reserved))}: the renderer gives it")
    return kwargs
