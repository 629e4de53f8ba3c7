"""Chat-shaped messages and tools to canonical ones: what a history means, whichever client spelled it.

``noted`` counts, by cause, what had to be changed. Every refusal names the offending field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Message, Tool, ToolCall, canonical_arguments, canonical_json
from relaxforge.gateway.body import kind
from relaxforge.gateway.content import read_content
from relaxforge.gateway.noise import ALL_NOISE
from relaxforge.gateway.reading import lone_surrogates

ROLES = ("system", "user", "assistant", "tool", "developer")
RESERVED_KWARGS = ("add_generation_prompt", "tokenize", "tools")
EFFORT = "reasoning_effort"
"""Template argument under which every API's wish about reasoning is known."""

NO_PARAMETERS = '{"properties":{},"type":"object"}'


def read_message(value: Any, where: str, noted: Counter[str], noise: Collection[str] = ALL_NOISE) -> Message:
    """One Chat-shaped message. ``where`` is its path in the request, for errors.

    A system message that held nothing but noise comes back empty: it means nothing, see ``is_meant``.
    """
    if not isinstance(value, dict):
        raise RequestError(f"{where} must be an object, got {kind(value)}", param=where)
    role = value.get("role")
    if role == "assistant":
        return _assistant(value, where, noted)
    if role == "tool":
        content = read_content(value, where, noted, images=True)
        return Message("tool", content, tool_call_id=_call_id(value, where))
    if role == "user":
        return Message("user", read_content(value, where, noted, images=True))
    if role == "developer":
        noted["developer_role"] += 1
    elif role != "system":
        shown = repr(role) if isinstance(role, str) else kind(role)
        raise RequestError(f"{where}.role must be one of {', '.join(ROLES)}, got {shown}", param=f"{where}.role")
    return Message("system", read_content(value, where, noted, noise=noise))


def is_meant(message: Message) -> bool:
    """False for a system message of which nothing is left."""
    return bool(message.content) or message.role != "system"


def _assistant(value: dict[str, Any], where: str, noted: Counter[str]) -> Message:
    name = "reasoning_content" if value.get("reasoning_content") is not None else "reasoning"
    calls = optional(value, "tool_calls", list, where) or []
    return Message(
        "assistant",
        read_content(value, where, noted, required=False),
        optional(value, name, str, where) or "",
        tuple(_tool_call(call, f"{where}.tool_calls[{index}]", noted) for index, call in enumerate(calls)),
    )


def _tool_call(value: Any, where: str, noted: Counter[str]) -> ToolCall:
    """A call as the model made it: an id or a name may be missing, since a broken answer is echoed too."""
    if not isinstance(value, dict) or value.get("type", "function") != "function":
        raise RequestError(f"{where} must be a tool call of type function", param=where)
    function = optional(value, "function", dict, where) or {}
    inside = f"{where}.function"
    arguments = read_arguments(function.get("arguments"), f"{inside}.arguments", noted)
    return ToolCall(optional(value, "id", str, where) or "", optional(function, "name", str, inside) or "", arguments)


def read_arguments(arguments: Any, where: str, noted: Counter[str]) -> str:
    """Arguments of a call as identity sees them: JSON text or an object; text that is no JSON stays as it is."""
    if isinstance(arguments, dict):
        arguments = canonical_json(arguments)
    elif arguments is not None and not isinstance(arguments, str):
        raise RequestError(f"{where} must be JSON text or an object, got {kind(arguments)}", param=where)
    canonical = canonical_arguments(arguments or "")
    if arguments and canonical != arguments:
        noted["lone_surrogate"] += lone_surrogates(arguments.encode())
    return canonical


def _call_id(value: dict[str, Any], where: str) -> str:
    call_id = value.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        raise RequestError(
            f"{where}.tool_call_id must be the id of the tool call that this message answers, got {kind(call_id)}",
            param=f"{where}.tool_call_id",
        )
    return call_id


def read_tools(value: Any, where: str, noted: Counter[str]) -> tuple[Tool, ...]:
    """Function tools, reduced to what a template can render; tools of other types are dropped and counted."""
    return tuple(
        read_function(tool.get("function"), f"{where}[{index}].function")
        for index, tool in enumerate(tool_list(value, where))
        if is_usable(tool, ("function",), noted)
    )


def tool_list(value: Any, where: str) -> list[dict[str, Any]]:
    """A list of objects, or nothing."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestError(f"{where} must be a list, got {kind(value)}", param=where)
    for index, tool in enumerate(value):
        if not isinstance(tool, dict):
            raise RequestError(f"{where}[{index}] must be an object, got {kind(tool)}", param=f"{where}[{index}]")
    return value


def is_usable(tool: dict[str, Any], usable: Collection[str], noted: Counter[str]) -> bool:
    """Whether a template can show this type of tool; noted by type if not. Without a type it is a function."""
    named = tool.get("type")
    if named is None or (isinstance(named, str) and named in usable):
        return True
    noted[f"tool_type_ignored:{str(named)[:64]}"] += 1
    return False


def read_function(function: Any, where: str, schema: str = "parameters") -> Tool:
    """A function by ``name``, ``description`` and the JSON schema in field ``schema``."""
    if not isinstance(function, dict):
        raise RequestError(f"{where} must be an object", param=where)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"{where}.name must be a non-empty string", param=f"{where}.name")
    parameters = optional(function, schema, dict, where)
    shown = NO_PARAMETERS if parameters is None else canonical_json(parameters)
    return Tool(name, optional(function, "description", str, where), shown)


def read_template_kwargs(value: Any, where: str, effort: str | None = None) -> str:
    """Template arguments as canonical JSON text of an object; ``effort`` is added unless they name one themselves."""
    if value is None:
        return "{}" if effort is None else canonical_json({EFFORT: effort})
    if not isinstance(value, dict):
        raise RequestError(f"{where} must be an object, got {kind(value)}", param=where)
    for name in RESERVED_KWARGS:
        if name in value:
            raise RequestError(f"{where}.{name} is set by RelaxForge; leave it out", param=f"{where}.{name}")
    return canonical_json(value if effort is None else {EFFORT: effort, **value})


def read_may_call(choice: Any) -> bool | None:
    """Whether ``tool_choice`` leaves the model free to call; ``None`` for a wish that cannot be granted."""
    if isinstance(choice, dict):
        choice = choice.get("type")
    return {None: True, "auto": True, "none": False}.get(choice) if choice is None or isinstance(choice, str) else None


def optional(value: dict[str, Any], name: str, wanted: type, where: str) -> Any:
    """A field that may be absent or null. Errors: ``RequestError`` naming it when it is of another kind."""
    found = value.get(name)
    if found is None or isinstance(found, wanted):
        return found
    shown = kind(wanted())
    raise RequestError(f"{where}.{name} must be {shown} or absent, got {kind(found)}", param=f"{where}.{name}")
