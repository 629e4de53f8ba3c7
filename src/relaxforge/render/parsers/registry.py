"""Parsers by name: ours under every name that servers know them by, or a function of the user's own.

A function of one's own: a tool-call parser is ``(text, tools) -> (text, [(name, arguments), ...])`` with arguments as a
mapping or as JSON text, a reasoning parser is ``(text, opened_by_prompt) -> (reasoning, text)``. What it raises, or
returns wrongly, turns that answer into plain text with the reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from relaxforge.core.errors import ConfigError
from relaxforge.core.messages import Tool, canonical_arguments, canonical_json
from relaxforge.render.parsers.deepseek import deepseek
from relaxforge.render.parsers.gemma import gemma4, gemma4_reasoning
from relaxforge.render.parsers.glm import glm
from relaxforge.render.parsers.harmony import harmony, harmony_reasoning
from relaxforge.render.parsers.hermes import hermes
from relaxforge.render.parsers.kimi import kimi
from relaxforge.render.parsers.kimi_k3 import kimi_k3, kimi_k3_reasoning
from relaxforge.render.parsers.llama import llama3
from relaxforge.render.parsers.mistral import mistral, mistral_reasoning
from relaxforge.render.parsers.qwen3_coder import qwen3_coder
from relaxforge.render.parsers.reading import Reading
from relaxforge.render.parsers.think import think
from relaxforge.render.tokens import whole_characters

Parser = TypeVar("Parser")
ToolCallParser = Callable[[str, tuple[Tool, ...]], Reading]
ReasoningParser = Callable[[str, bool], tuple[str, str]]


def _by_name(*families: tuple[Parser, str]) -> dict[str, Parser]:
    return {name: parser for parser, names in families for name in names.split()}


TOOL_CALL_PARSERS = _by_name(
    (hermes, "qwen hermes qwen25 qwen2_5 qwen3"),
    (qwen3_coder, "qwen3_coder qwen3_xml"),
    (llama3, "llama3 llama3_json llama4_json"),
    (mistral, "mistral"),
    (
        deepseek,
        "deepseek deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseekv3 deepseekv31 deepseekv32 deepseekv4",
    ),
    (glm, "glm glm45 glm47"),
    (kimi, "kimi kimi_k2"),
    (kimi_k3, "kimi_k3"),
    (harmony, "harmony gpt_oss openai"),
    (gemma4, "gemma gemma4"),
)
"""Our name first, then those of vLLM and SGLang; ``-`` and ``.`` in a name mean ``_``."""

BLOCK_BY_BLOCK: frozenset[ToolCallParser] = frozenset({hermes, qwen3_coder, llama3, mistral, deepseek, glm, kimi})
"""Parsers that leave the text before the first block as it is, and whose blocks begin with markup."""

REASONING_PARSERS = _by_name(
    (
        think,
        "think qwen qwen3 qwen3_thinking deepseek deepseek_r1 deepseek_v3 deepseek_v31 deepseek_v4 glm glm45 "
        "kimi kimi_k2 kimi_k2_thinking nemotron_3 nano_v3",
    ),
    (mistral_reasoning, "mistral"),
    (kimi_k3_reasoning, "kimi_k3"),
    (harmony_reasoning, "harmony gpt_oss openai_gptoss"),
    (gemma4_reasoning, "gemma gemma4"),
)
"""The same for reasoning."""


def tool_call_parser(name: str | None) -> ToolCallParser | None:
    """The parser called ``name``; ``None`` for ``None`` and ``none``. Errors: ``ConfigError``."""
    found = _find(name, TOOL_CALL_PARSERS, "--agentic-tool-call-parser")
    return found if found is None or found in TOOL_CALL_PARSERS.values() else _own_tool_call_parser(found)


def reasoning_parser(name: str | None) -> ReasoningParser | None:
    """The parser called ``name``; ``None`` for ``None`` and ``none``. Errors: ``ConfigError``."""
    found = _find(name, REASONING_PARSERS, "--agentic-reasoning-parser")
    return found if found is None or found in REASONING_PARSERS.values() else _own_reasoning_parser(found)


def _find(name: str | None, known: Mapping[str, Callable[..., Any]], flag: str) -> Callable[..., Any] | None:
    if name is None or name == "none":
        return None
    plain = name.lower().replace("-", "_").replace(".", "_")
    if plain in known:
        return known[plain]
    if ":" in name or "." in name:
        return _load(name, flag)
    names = [*known, "none", "auto"]
    nearest = difflib.get_close_matches(plain, names, n=1, cutoff=0.0)[0]
    raise ConfigError(
        f"{flag} {name!r} is unknown; known: {', '.join(names)}, or a Python path pkg.mod:func. Nearest: {nearest}"
    )


def _load(path: str, flag: str) -> Callable[..., Any]:
    module, _, function = path.partition(":") if ":" in path else path.rpartition(".")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{flag} {path!r} cannot be imported: {error}") from None
    if not callable(found):
        raise ConfigError(f"{flag} {path!r} is not a function")
    return found  # type: ignore[no-any-return]


def _own_tool_call_parser(function: Callable[..., Any]) -> ToolCallParser:
    def read(text: str, tools: tuple[Tool, ...]) -> Reading:
        rest, calls = function(text, tools)
        return Reading(_text(rest), tuple((_text(name), _arguments(value)) for name, value in calls))

    return read


def _own_reasoning_parser(function: Callable[..., Any]) -> ReasoningParser:
    def read(text: str, opened: bool) -> tuple[str, str]:
        reasoning, answer = function(text, opened)
        return _text(reasoning), _text(answer)

    return read


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return whole_characters(value)


def _arguments(value: object) -> str:
    """Arguments as ``ToolCall`` keeps them: canonical JSON of an object, any other text as it is."""
    return canonical_arguments(canonical_json(value) if isinstance(value, Mapping) else _text(value))
