"""Blocks of the Messages API: what each message means, and an answer as blocks."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Collection
from typing import Any

import msgspec

from relaxforge.core import strict_json
from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Content, ImagePart, Message, Part, TextPart, Tool, ToolCall, canonical_json
from relaxforge.core.turns import ModelTurn
from relaxforge.gateway.body import kind
from relaxforge.gateway.canonical import is_usable, optional, read_function, tool_list
from relaxforge.gateway.content import image, joined

RAW_ARGUMENTS = "_raw_arguments"
"""Only key of a tool input that stands for arguments which were no JSON object: input must be one in this API."""

FAILED = "error"
"""What a failed tool said when it said nothing."""

_ROLES = ("user", "assistant", "system")


def read_message(
    value: Any, where: str, noted: Counter[str], noise: Collection[str] = ()
) -> Message | tuple[Message, ...]:
    """What one message means: a user message with tool results is several, one of ignored blocks is none."""
    if not isinstance(value, dict):
        raise RequestError(f"{where} must be an object, got {kind(value)}", param=where)
    role, inside = value.get("role"), f"{where}.content"
    if role == "system":
        return read_system(value.get("content"), inside, noted, noise)
    blocks = _blocks(value.get("content"), inside)
    if role == "assistant":
        return _assistant(blocks, inside, noted)
    if role == "user":
        return _user(blocks, inside, noted)
    shown = repr(role) if isinstance(role, str) else kind(role)
    raise RequestError(f"{where}.role must be one of {', '.join(_ROLES)}, got {shown}", param=f"{where}.role")


def read_system(content: Any, where: str, noted: Counter[str], noise: Collection[str]) -> tuple[Message, ...]:
    """System text, as a string or as blocks."""
    parts = [part for at, block in _located(_blocks(content, where), where) if (part := _part(block, at, noted))]
    text = joined(parts, where, noted, images=False, noise=noise)
    return (Message("system", text),) if text else ()


def _blocks(content: Any, where: str) -> list[Any]:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content or ""}]
    if not isinstance(content, list):
        raise RequestError(f"{where} must be a string or a list of blocks, got {kind(content)}", param=where)
    return content


def _located(blocks: list[Any], where: str) -> list[tuple[str, dict[str, Any]]]:
    """Blocks with their paths. Errors: ``RequestError`` for one that is no object or does not say its type."""
    for index, block in enumerate(blocks):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise RequestError(f"{where}[{index}] must be an object with a type", param=f"{where}[{index}]")
    return [(f"{where}[{index}]", block) for index, block in enumerate(blocks)]


def _assistant(blocks: list[Any], where: str, noted: Counter[str]) -> Message:
    texts, thoughts, calls = [], [], []
    for at, block in _located(blocks, where):
        match block["type"]:
            case "thinking":
                thoughts.append(optional(block, "thinking", str, at) or "")
            case "tool_use":
                calls.append(_call(block, at))
            case _:
                part = _part(block, at, noted)
                if isinstance(part, ImagePart):
                    raise RequestError(f"{at} is an image; only user messages and tool results may", param=at)
                texts.append(part.text if part else "")
    return Message("assistant", "".join(texts), "\n\n".join(filter(None, thoughts)), tuple(calls))


def _user(blocks: list[Any], where: str, noted: Counter[str]) -> Message | tuple[Message, ...]:
    """Tool results in place; what stands between them is a user message of its own."""
    means: list[Message] = []
    parts: list[Part] = []
    for at, block in _located(blocks, where):
        if block["type"] == "tool_result":
            means += _said(parts, where, noted)
            parts = []
            means.append(_tool_result(block, at, noted))
        elif part := _part(block, at, noted):
            parts.append(part)
    means += _said(parts, where, noted)
    if not means and not blocks:
        raise RequestError(f"{where} must not be an empty list", param=where)
    return means[0] if len(means) == 1 else tuple(means)


def _said(parts: list[Part], where: str, noted: Counter[str]) -> list[Message]:
    return [Message("user", joined(parts, where, noted))] if parts else []


def _tool_result(block: dict[str, Any], where: str, noted: Counter[str]) -> Message:
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str) or not call_id:
        raise RequestError(
            f"{where}.tool_use_id must be the id of the tool_use block that this answers, got {kind(call_id)}",
            param=f"{where}.tool_use_id",
        )
    inside = f"{where}.content"
    found = _located(_blocks(block.get("content"), inside), inside)
    content: Content = joined([part for at, inner in found if (part := _part(inner, at, noted))], inside, noted)
    failed = optional(block, "is_error", bool, where)
    if failed and not content:
        content = FAILED
    return Message("tool", content, tool_call_id=call_id)


def _part(block: dict[str, Any], where: str, noted: Counter[str]) -> Part | None:
    """Text or an image; ``None`` for blocks that no template can show, which are noted."""
    match block["type"]:
        case "text":
            return TextPart(optional(block, "text", str, where) or "")
        case "image":
            return _image(block.get("source"), f"{where}.source")
        case "thinking" | "tool_use" | "tool_result" as named:
            raise RequestError(f"{where} is a {named} block, which may not stand there", param=where)
        case named:
            noted[f"block_ignored:{named[:64]}"] += 1
            return None


def _image(source: Any, where: str) -> ImagePart:
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
            return image(f"data:{media_type};base64,{data}", f"{where}.data")
        case {"type": "url", "url": str(url)}:
            return image(url, f"{where}.url")
    raise RequestError(f"{where} must be of type base64 with media_type and data, or of type url", param=where)


def _call(block: dict[str, Any], where: str) -> ToolCall:
    given = optional(block, "input", dict, where) or {}
    match given:
        case {"_raw_arguments": str(text)} if len(given) == 1:
            arguments = text
        case _:
            arguments = canonical_json(given)
    return ToolCall(optional(block, "id", str, where) or "", optional(block, "name", str, where) or "", arguments)


def read_block_tools(value: Any, where: str, noted: Counter[str]) -> tuple[Tool, ...]:
    """Tools with an ``input_schema``; those that a server would run are dropped and noted."""
    return tuple(
        read_function(tool, f"{where}[{index}]", "input_schema")
        for index, tool in enumerate(tool_list(value, where))
        if is_usable(tool, ("custom",), noted)
    )


def output_blocks(turn: ModelTurn) -> list[dict[str, Any]]:
    """An answer as blocks: thinking, then text, then calls."""
    message = turn.message
    blocks: list[dict[str, Any]] = []
    if message.reasoning:
        # Clients drop thinking that is not signed. The signature is opaque to them and names the request to us.
        signature = base64.b64encode(turn.request_id.encode()).decode()
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": signature})
    if message.text or not message.tool_calls:
        blocks.append({"type": "text", "text": message.text})
    return blocks + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
        for call in message.tool_calls
    ]


def _input(arguments: str) -> msgspec.Raw:
    """Arguments as they are: decoded and encoded again, large integers would not be what they were."""
    try:
        is_object = isinstance(strict_json.loads(arguments), dict)
    except ValueError:
        is_object = False
    return msgspec.Raw((arguments if is_object else canonical_json({RAW_ARGUMENTS: arguments})).encode())
