"""``auto``: the parsers that a chat template speaks of. Its own control tokens and tags tell the families apart."""

from __future__ import annotations

BAR, LOW_LINE = "\uff5c", "\u2581"

_TOOL_CALLS = (
    ("<|channel|>", "harmony"),
    ("<|tool_calls_section_begin|>", "kimi"),
    ("<|open|>", "kimi_k3"),
    (f"tool{LOW_LINE}calls{LOW_LINE}begin", "deepseek"),
    (f"{BAR}DSML{BAR}", "deepseek"),
    ("<arg_key>", "glm"),
    ("<function=", "qwen3_coder"),
    ("<tool_call>", "qwen"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|tool_call>call:", "gemma4"),
    ('{"name": function name, "parameters":', "llama3"),
)
_REASONING = (
    ("<|channel|>", "harmony"),
    ("<|open|>", "kimi_k3"),
    ("<|channel>", "gemma4"),
    ("[THINK]", "mistral"),
    ("</think>", "think"),
)
"""The first marker that the template spells decides, so the more particular ones stand first."""


def tool_call_parser_of(template: str) -> str:
    """The name of the tool-call parser for models with this ``template`` source; ``none`` when nothing is known."""
    return _first(template, _TOOL_CALLS)


def reasoning_parser_of(template: str) -> str:
    """The same for reasoning."""
    return _first(template, _REASONING)


def _first(template: str, markers: tuple[tuple[str, str], ...]) -> str:
    return next((name for marker, name in markers if marker in template), "none")
