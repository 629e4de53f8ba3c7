"""One output item of the Responses API as the events that build it up."""

from __future__ import annotations

from typing import Any

_PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "message": ("output_text", {"logprobs": []}),
    "reasoning": ("reasoning_text", {}),
}
_CALLS = {
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}


def item_events(item: dict[str, Any], index: int) -> list[dict[str, Any]]:
    """From ``response.output_item.added`` to ``response.output_item.done``, each text in one delta."""
    place = {"item_id": item["id"], "output_index": index}
    begun = {**item, "status": "in_progress"}
    if item["type"] in _CALLS:
        name, field = _CALLS[item["type"]]
        begun[field] = ""
        inner = [
            {"type": f"response.{name}.delta", **place, "delta": item[field]},
            {"type": f"response.{name}.done", **place, field: item[field], **_named(item)},
        ]
    else:
        begun["content"] = []
        inner = _part_events(item["content"][0], *_PARTS[item["type"]], {**place, "content_index": 0})
    return [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        *inner,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def with_text(event: dict[str, Any], text: str) -> dict[str, Any] | None:
    """The event that carries an answer's text with another text in it; ``None`` for every other event."""
    return {**event, "delta": text} if event["type"] == "response.output_text.delta" else None


def _part_events(part: dict[str, Any], name: str, extra: dict[str, Any], place: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        {"type": f"response.{name}.delta", **place, **extra, "delta": part["text"]},
        {"type": f"response.{name}.done", **place, **extra, "text": part["text"]},
        {"type": "response.content_part.done", **place, "part": part},
    ]


def _named(item: dict[str, Any]) -> dict[str, Any]:
    """The official event repeats the name of a function, and no other."""
    return {"name": item["name"]} if item["type"] == "function_call" else {}
