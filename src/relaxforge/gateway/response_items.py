"""Items of the Responses API: what each means as a message, and an answer as items.

An answer is spread over several items there; each becomes an assistant message of its own, and neighbours are joined.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from typing import Any

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Content, Message, Part, TextPart, Tool, ToolCall, canonical_json
from relaxforge.core.turns import ModelTurn
from relaxforge.gateway.body import kind
from relaxforge.gateway.canonical import is_usable, optional, read_arguments, read_function, tool_list
from relaxforge.gateway.content import image, joined

CUSTOM_PARAMETERS = canonical_json(
    {
        "type": "object",
        "properties": {"input": {"type": "string", "description": "The whole input, as plain text."}},
        "required": ["input"],
        "additionalProperties": False,
    }
)
"""Schema of a custom tool, which takes one text; by it the tool is known again when it is called."""

ADDITIONAL_TOOLS = "additional_tools"
SEPARATOR = "."
"""Between a namespace and the name of its tool; no name of this API may hold one."""

_TEXT_PARTS = ("input_text", "output_text", "text")
_ROLES = ("user", "assistant", "system", "developer")


def read_item(
    value: Any, where: str, noted: Counter[str], noise: Collection[str] = ()
) -> Message | tuple[Message, ...]:
    """What one input item means; nothing for kinds that no template can show, which are noted."""
    if not isinstance(value, dict):
        raise RequestError(f"{where} must be an object, got {kind(value)}", param=where)
    match value.get("type", "message" if "role" in value else None):
        case "message":
            return _message(value, where, noted, noise)
        case "reasoning":
            return _reasoning(value, where, noted)
        case "function_call":
            arguments = read_arguments(value.get("arguments"), f"{where}.arguments", noted)
            return Message("assistant", tool_calls=(ToolCall(_call_id(value, where), _name(value, where), arguments),))
        case "custom_tool_call":
            arguments = canonical_json({"input": optional(value, "input", str, where) or ""})
            return Message("assistant", tool_calls=(ToolCall(_call_id(value, where), _name(value, where), arguments),))
        case "function_call_output" | "custom_tool_call_output":
            output = _content(value.get("output"), f"{where}.output", noted, images=True)
            return Message("tool", output or "", tool_call_id=_call_id(value, where))
        case "item_reference" | "compaction_trigger" as named:
            raise RequestError(
                f"{where} is of type {named}, which needs a server that keeps conversations; send the full input",
                param=f"{where}.type",
            )
        case str(named):
            noted[f"item_ignored:{named[:64]}"] += named != ADDITIONAL_TOOLS
            return ()
    raise RequestError(f"{where}.type must name the kind of item", param=f"{where}.type")


def _message(
    value: dict[str, Any], where: str, noted: Counter[str], noise: Collection[str]
) -> Message | tuple[Message, ...]:
    role = value.get("role")
    if role == "developer":
        noted["developer_role"] += 1
        role = "system"
    inside = f"{where}.content"
    if role == "system":
        content = _content(value.get("content"), inside, noted, noise=noise)
        return Message("system", content) if content else ()
    if role == "assistant":
        return Message("assistant", _content(value.get("content"), inside, noted) or "")
    if role == "user":
        content = _content(value.get("content"), inside, noted, images=True)
        return () if content is None else Message("user", content)
    shown = repr(role) if isinstance(role, str) else kind(role)
    raise RequestError(f"{where}.role must be one of {', '.join(_ROLES)}, got {shown}", param=f"{where}.role")


def _content(
    content: Any, where: str, noted: Counter[str], *, images: bool = False, noise: Collection[str] = ()
) -> Content | None:
    """Text, or parts with an image among them; ``None`` when all its parts were of kinds that are ignored."""
    if content is None or isinstance(content, str):
        return joined([TextPart(content or "")], where, noted, noise=noise)
    if not isinstance(content, list):
        raise RequestError(f"{where} must be a string or a list, got {kind(content)}", param=where)
    parts = [part for index, raw in enumerate(content) if (part := _part(raw, f"{where}[{index}]", noted)) is not None]
    return None if content and not parts else joined(parts, where, noted, images=images, noise=noise)


def _part(part: Any, where: str, noted: Counter[str]) -> Part | None:
    if not isinstance(part, dict):
        raise RequestError(f"{where} must be an object, got {kind(part)}", param=where)
    named = part.get("type")
    if named in _TEXT_PARTS or named == "refusal":
        name = "refusal" if named == "refusal" else "text"
        return TextPart(optional(part, name, str, where) or "")
    if named == "input_image":
        url = part.get("image_url")
        if not isinstance(url, str):
            raise RequestError(f"{where}.image_url must be an address or a data URL", param=f"{where}.image_url")
        return image(url, f"{where}.image_url")
    if not isinstance(named, str):
        raise RequestError(f"{where}.type must name the kind of content", param=f"{where}.type")
    noted[f"part_ignored:{named[:64]}"] += 1
    return None


def _reasoning(value: dict[str, Any], where: str, noted: Counter[str]) -> Message | tuple[Message, ...]:
    """The readable summary, else the readable content. What is only encrypted was never ours to read."""
    for name in ("summary", "content"):
        texts = [
            optional(part, "text", str, f"{where}.{name}[{index}]") or ""
            for index, part in enumerate(tool_list(value.get(name), f"{where}.{name}"))
        ]
        if any(texts):
            return Message("assistant", reasoning="\n\n".join(texts))
    noted["reasoning_unreadable"] += 1
    return ()


def _call_id(value: dict[str, Any], where: str) -> str:
    call_id = value.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        raise RequestError(
            f"{where}.call_id must be the id that joins a call and its output, got {kind(call_id)}",
            param=f"{where}.call_id",
        )
    return call_id


def _name(value: dict[str, Any], where: str) -> str:
    namespace, name = optional(value, "namespace", str, where), optional(value, "name", str, where) or ""
    return f"{namespace}{SEPARATOR}{name}" if namespace else name


def read_item_tools(value: Any, where: str, noted: Counter[str]) -> tuple[Tool, ...]:
    """Function, custom and namespace tools as functions; others are dropped and noted."""
    tools: list[Tool] = []
    for index, tool in enumerate(tool_list(value, where)):
        inside = f"{where}[{index}]"
        if not is_usable(tool, ("function", "custom", "namespace"), noted):
            continue
        if tool.get("type") == "namespace":
            space = read_function({"name": tool.get("name")}, inside).name
            inner = read_item_tools(tool.get("tools"), f"{inside}.tools", noted)
            tools += [Tool(f"{space}{SEPARATOR}{one.name}", one.description, one.parameters) for one in inner]
        elif tool.get("type") == "custom":
            tools.append(_custom(tool, inside))
        else:
            tools.append(read_function(tool, inside))
    return tuple(tools)


def _custom(tool: dict[str, Any], where: str) -> Tool:
    plain = read_function({"name": tool.get("name"), "description": tool.get("description")}, where)
    match tool.get("format"):
        case {"type": "grammar", "definition": str(definition)}:
            said = f"{plain.description or ''}\n\nThe input follows this grammar:\n{definition}".lstrip()
        case _:
            said = plain.description or ""
    return Tool(plain.name, said or None, CUSTOM_PARAMETERS)


def output_items(turn: ModelTurn, tools: tuple[Tool, ...]) -> list[dict[str, Any]]:
    """An answer as items: reasoning, then text, then calls, each call in the kind of its tool."""
    message, request_id = turn.message, turn.request_id
    items: list[dict[str, Any]] = []
    if message.reasoning:
        content = [{"type": "reasoning_text", "text": message.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{request_id}", "summary": [], "content": content})
    if message.text or not (message.reasoning or message.tool_calls):
        part = {"type": "output_text", "text": message.text, "annotations": [], "logprobs": []}
        items.append({"type": "message", "id": f"msg_{request_id}", "role": "assistant", "content": [part]})
    offered = {tool.name: tool for tool in tools}
    for index, call in enumerate(message.tool_calls):
        items.append(_call_item(call, f"{request_id}_{index}", offered.get(call.name)))
    for item in items:
        item["status"] = "completed"
    if turn.finish == "length":
        items[-1]["status"] = "incomplete"
    return items


def _call_item(call: ToolCall, number: str, tool: Tool | None) -> dict[str, Any]:
    """A call in the kind of ``tool``, the one that it names.

    A call of a custom tool that is not just its text stays a function call, so that it comes back unchanged.
    """
    namespace, _, name = call.name.rpartition(SEPARATOR) if tool else ("", "", "")
    text = _custom_input(call.arguments) if tool and tool.parameters == CUSTOM_PARAMETERS else None
    if text is None:
        item = {"type": "function_call", "id": f"fc_{number}", "arguments": call.arguments}
    else:
        item = {"type": "custom_tool_call", "id": f"ctc_{number}", "input": text}
    if namespace:
        return item | {"call_id": call.id, "name": name, "namespace": namespace}
    return item | {"call_id": call.id, "name": call.name}


def _custom_input(arguments: str) -> str | None:
    try:
        match json.loads(arguments):
            case {"input": str(text), **rest} if not rest:
                return text
    except ValueError:
        pass
    return None
