"""Settings of the render room."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from relaxforge.core.errors import ConfigError

RESERVED_ARGUMENTS = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversations",
        "messages",
        "return_assistant_tokens_mask",
        "tools",
    }
)
"""Template arguments that are ours to give."""


@dataclass(frozen=True, slots=True)
class RenderConfig:
    """How messages become tokens and sampled tokens become messages."""

    agentic_tool_call_parser: str | None = None
    """Reads tool calls out of answers to requests that offer tools: `qwen`, `qwen3-coder`, `llama3`, `mistral`,
    `deepseek`, `glm`, `kimi`, `kimi-k3`, `harmony` (gpt-oss) or `gemma4`, each also under the names of vLLM and SGLang;
    `auto` chooses by the chat template (`relaxforge doctor` shows which); `none`; or a Python path `pkg.mod:func` of a
    function `(text, tools) -> (text, [(name, arguments), ...])`. None: answers stay text."""

    agentic_reasoning_parser: str | None = None
    """Splits reasoning from the answer: `think` (Qwen, DeepSeek, GLM, Kimi K2, under their names too), `mistral`,
    `kimi-k3`, `harmony` (gpt-oss) or `gemma4`; `auto` chooses by the chat template; `none`; or a Python path
    `pkg.mod:func` of a function `(text, opened_by_prompt) -> (reasoning, text)`. None: reasoning stays in the text."""

    apply_chat_template_kwargs: str = "{}"
    """JSON object of extra template arguments, for example `{"enable_thinking": false}`. A request's own
    `chat_template_kwargs` win over it."""

    agentic_special_tokens: Literal["keep", "escape"] = "keep"
    """Spellings of control tokens inside system, user and tool messages: `keep` lets them become control tokens, as the
    template renders them; `escape` breaks them with a zero-width joiner, so that they stay readable text."""

    check_render_every: int = 50
    """Every n-th Turn is compared with a render of its whole conversation, off the hot path. 0: never."""

    def __post_init__(self) -> None:
        if self.check_render_every < 0:
            raise ConfigError(f"--check-render-every must be >= 0 Turns, got {self.check_render_every}")
        if self.agentic_special_tokens not in ("keep", "escape"):
            raise ConfigError(f"--agentic-special-tokens must be keep or escape, got {self.agentic_special_tokens!r}")
        _ = self.template_kwargs

    @property
    def template_kwargs(self) -> dict[str, Any]:
        """``apply_chat_template_kwargs`` as a mapping. Errors: ``ConfigError``."""
        try:
            kwargs = json.loads(self.apply_chat_template_kwargs)
        except ValueError as error:
            raise ConfigError(f"--apply-chat-template-kwargs must be a JSON object: {error}") from None
        if not isinstance(kwargs, dict):
            raise ConfigError(f"--apply-chat-template-kwargs must be a JSON object, got {type(kwargs).__name__}")
        if reserved := RESERVED_ARGUMENTS & kwargs.keys():
            raise ConfigError(f"--apply-chat-template-kwargs may not set {', '.join(sorted(reserved))}")
        return kwargs
