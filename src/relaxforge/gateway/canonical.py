"""Chat-shaped messages and tools to canonical ones: what a history means, whichever client spelled it.

``noted`` counts, by cause, what had to be changed. Every refusal names the offending field.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any

from xxhash import xxh3_128_digest

from relaxforge.core import strict_json
from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Message, Tool, ToolCall, canonical_arguments, canonical_json
from relaxforge.gateway.body import kind, parse_value
from relaxforge.gateway.content import read_content

ROLES = ("system", "user", "assistant", "tool", "developer")
RESERVED_KWARGS = ("add_generation_prompt", "tokenize", "tools")

# Raw bytes are only recognised here, identity is Message.exact; hashing a long history with a cryptographic digest was
# a third of a request's cost. The seed is drawn per process, so that nobody can prepare two messages with one key.
_SEED = secrets.randbits(64)

NO_PARAMETERS = '{"properties":{},"type":"object"}'


def read_messages(
    raws: Sequence[bytes], known: dict[bytes, Message], noted: Counter[str]
) -> tuple[tuple[Message, ...], bytes]:
    """The canonical history, and the joined digests of its raw messages.

    Only raw messages that ``known`` has not seen are parsed; ``known`` learns them.
    """
    history, keys = [], []
    for index, raw in enumerate(raws):
        key = xxh3_128_digest(raw, _SEED)
        message = known.get(key)
        if message is None:
            where = f"messages[{index}]"
            noted["lone_surrogate"] += _lone_surrogates(bytes(raw))
            fresh = read_message(parse_value(raw, where), where, noted)
            message = known[key] = known.setdefault(fresh.exact, fresh)
        history.append(message)
        keys.append(key)
    return tuple(history), b"".join(keys)


def read_message(value: Any, where: str, noted: Counter[str]) -> Message:
    """One Chat-shaped message. ``where`` is its path in the request, for errors."""
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
    return Message("system", read_content(value, where, noted))


def _assistant(value: dict[str, Any], where: str, noted: Counter[str]) -> Message:
    name = "reasoning_content" if value.get("reasoning_content") is not None else "reasoning"
    calls = _optional(value, "tool_calls", list, where) or []
    return Message(
        "assistant",
        read_content(value, where, noted, required=False),
        _optional(value, name, str, where) or "",
        tuple(_tool_call(call, f"{where}.tool_calls[{index}]", noted) for index, call in enumerate(calls)),
    )


def _tool_call(value: Any, where: str, noted: Counter[str]) -> ToolCall:
    """A call as the model made it: an id or a name may be missing, since a broken answer is echoed too."""
    if not isinstance(value, dict) or value.get("type", "function") != "function":
        raise RequestError(f"{where} must be a tool call of type function", param=where)
    function = _optional(value, "function", dict, where) or {}
    inside = f"{where}.function"
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = canonical_json(arguments)
    elif arguments is not None and not isinstance(arguments, str):
        raise RequestError(
            f"{inside}.arguments must be JSON text or an object, got {kind(arguments)}", param=f"{inside}.arguments"
        )
    canonical = canonical_arguments(arguments or "")
    if arguments and canonical != arguments:
        noted["lone_surrogate"] += _lone_surrogates(arguments.encode())
    return ToolCall(_optional(value, "id", str, where) or "", _optional(function, "name", str, inside) or "", canonical)


def _lone_surrogates(raw: bytes) -> int:
    return strict_json.replace_lone_surrogates(raw).count(strict_json.REPLACEMENT)


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
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RequestError(f"{where} must be a list, got {kind(value)}", param=where)
    return tuple(
        _tool(tool["function"], f"{where}[{index}].function")
        for index, tool in enumerate(value)
        if _is_function(tool, f"{where}[{index}]", noted)
    )


def _is_function(tool: Any, where: str, noted: Counter[str]) -> bool:
    if not isinstance(tool, dict):
        raise RequestError(f"{where} must be an object, got {kind(tool)}", param=where)
    if tool.get("type", "function") != "function":
        noted["tool_type_ignored"] += 1
        return False
    if not isinstance(tool.get("function"), dict):
        raise RequestError(f"{where}.function must be an object", param=f"{where}.function")
    return True


def _tool(function: dict[str, Any], where: str) -> Tool:
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"{where}.name must be a non-empty string", param=f"{where}.name")
    parameters = _optional(function, "parameters", dict, where)
    schema = NO_PARAMETERS if parameters is None else canonical_json(parameters)
    return Tool(name, _optional(function, "description", str, where), schema)


def read_template_kwargs(value: Any, where: str) -> str:
    """Template arguments as canonical JSON text of an object."""
    if value is None:
        return "{}"
    if not isinstance(value, dict):
        raise RequestError(f"{where} must be an object, got {kind(value)}", param=where)
    for name in RESERVED_KWARGS:
        if name in value:
            raise RequestError(f"{where}.{name} is set by RelaxForge; leave it out", param=f"{where}.{name}")
    return canonical_json(value)


def _optional(value: dict[str, Any], name: str, wanted: type, where: str) -> Any:
    found = value.get(name)
    if found is None or isinstance(found, wanted):
        return found
    shown = kind(wanted())
    raise RequestError(f"{where}.{name} must be {shown} or absent, got {kind(found)}", param=f"{where}.{name}")
