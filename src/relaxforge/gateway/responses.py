"""OpenAI Responses: https://platform.openai.com/docs/api-reference/responses, as the integration guide narrows it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import msgspec

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Api, Message, ModelRequest, Tool
from relaxforge.core.ports import SessionDoor
from relaxforge.core.turns import ModelTurn
from relaxforge.gateway import sse
from relaxforge.gateway.body import Body, kind, parse_value
from relaxforge.gateway.canonical import read_may_call, read_template_kwargs
from relaxforge.gateway.chat import openai_error
from relaxforge.gateway.dialect import Headers, retry_hint
from relaxforge.gateway.live import LiveEvents
from relaxforge.gateway.noise import ALL_NOISE, without_noise
from relaxforge.gateway.reading import Reading
from relaxforge.gateway.response_events import item_events, with_text
from relaxforge.gateway.response_items import ADDITIONAL_TOOLS, output_items, read_item, read_item_tools

READ = frozenset(
    {
        "model", "input", "instructions", "tools", "tool_choice", "chat_template_kwargs", "reasoning",
        "max_output_tokens", "stream", "previous_response_id", "conversation",
    }
)  # fmt: skip
"""Fields that mean something here; the others are ignored and reported once per Session."""

_KEPT_ELSEWHERE = ("previous_response_id", "conversation")


class Responses:
    """The Responses dialect. ``default_model`` is echoed to a client that names none."""

    api: Api = "responses"
    heartbeat = sse.COMMENT

    def __init__(self, default_model: str, noise: Collection[str] = ALL_NOISE) -> None:
        self._default_model = default_model
        self._noise = noise

    def read(self, body: bytes, headers: Headers, door: SessionDoor) -> ModelRequest:
        fields, reading = Body.parse(body), Reading(self.api, door)
        for name in _KEPT_ELSEWHERE:
            if fields.value(name) is not None:
                raise RequestError(f"{name} is not supported: no conversation is kept; send the full input", param=name)
        messages, tools, retry_body = self._conversation(fields, reading)
        may_call = read_may_call(fields.value("tool_choice"))
        if may_call is None:
            reading.ignore("tool_choice")
        reading.ignored(fields, READ)
        return ModelRequest(
            api=self.api,
            model=fields.text("model") or self._default_model,
            messages=messages,
            retry=retry_hint(headers, retry_body),
            tools=tools,
            template_kwargs=read_template_kwargs(
                fields.value("chat_template_kwargs"), "chat_template_kwargs", _effort(fields)
            ),
            max_tokens=fields.positive("max_output_tokens"),
            stream=fields.flag("stream"),
            may_call=may_call is not False,
            normalised=reading.keep(),
        )

    def _conversation(self, fields: Body, reading: Reading) -> tuple[tuple[Message, ...], tuple[Tool, ...], bytes]:
        """The canonical history, the tools, and the identity of the body."""
        tools = reading.tools(fields.raw.get("tools", b"null"), "tools", read_item_tools)
        history = [*reading.field(fields, "instructions", partial(_instructions, noise=self._noise))]
        raw = fields.raw.get("input", b"null")
        if bytes(memoryview(raw)[:1]) == b'"':
            history += reading.field(fields, "input", lambda text, *_: Message("user", text))
            return tuple(history), tools, fields.digest("", b"")
        raws = fields.items("input")
        items, keys = reading.history(raws, "input", partial(read_item, noise=self._noise))
        history += items
        if not history:
            raise RequestError("input holds nothing that the model could be shown", param="input")
        for index in reading.nothing:
            tools += _attached(raws[index], f"input[{index}]", keys[index], reading)
        return reading.merged(history), tools, fields.digest("input", b"".join(keys))

    def write(self, request: ModelRequest, turn: ModelTurn) -> bytes:
        return msgspec.json.encode(_response(request, turn, output_items(turn, request.tools)))

    def error(self, error: RequestError) -> bytes:
        return openai_error(error)

    def live(self, request: ModelRequest) -> LiveEvents:
        return LiveEvents(partial(_events, request), with_text, _numbered)

    def failure(self, request: ModelRequest, error: RequestError) -> bytes:
        empty = _shape("resp_failed", request, "failed")
        failed = {**empty, "error": {"code": error.code, "message": str(error)}}
        return _numbered(
            [
                {"type": "response.created", "response": _begun(empty)},
                {"type": "response.failed", "response": failed},
            ]
        )


def _instructions(value: Any, where: str, noted: Counter[str], noise: Collection[str]) -> tuple[Message, ...]:
    if not isinstance(value, str):
        raise RequestError(f"{where} must be a string, got {kind(value)}", param=where)
    text = without_noise(value, noise, noted)
    return (Message("system", text),) if text else ()


def _attached(raw: bytes, where: str, key: bytes, reading: Reading) -> tuple[Tool, ...]:
    """Tools that an item of the input brings along."""
    tools = reading.attached_tools(key)
    if tools is None:
        value = parse_value(raw, where)
        brings = value.get("type") == ADDITIONAL_TOOLS
        tools = read_item_tools(value.get("tools"), f"{where}.tools", reading.noted) if brings else ()
        reading.attach_tools(key, tools)
    return tools


def _events(request: ModelRequest, turn: ModelTurn) -> list[dict[str, Any]]:
    items = output_items(turn, request.tools)
    response = _response(request, turn, items)
    return [
        {"type": "response.created", "response": _begun(response)},
        *(event for index, item in enumerate(items) for event in item_events(item, index)),
        {"type": f"response.{response['status']}", "response": response},
    ]


def _numbered(events: Sequence[dict[str, Any]], first: int = 0) -> bytes:
    return b"".join(sse.named({**event, "sequence_number": first + number}) for number, event in enumerate(events))


def _effort(fields: Body) -> str | None:
    reasoning = fields.value("reasoning")
    if reasoning is None:
        return None
    if not isinstance(reasoning, dict):
        raise RequestError(f"reasoning must be an object, got {kind(reasoning)}", param="reasoning")
    effort = reasoning.get("effort")
    if effort is not None and not isinstance(effort, str):
        raise RequestError(f"reasoning.effort must be a string, got {kind(effort)}", param="reasoning.effort")
    return effort


def _response(request: ModelRequest, turn: ModelTurn, items: list[dict[str, Any]]) -> dict[str, Any]:
    status = "incomplete" if turn.finish == "length" else "completed"
    usage = turn.usage
    return {
        **_shape(f"resp_{turn.request_id}", request, status),
        "output": items,
        "incomplete_details": {"reason": "max_output_tokens"} if turn.finish == "length" else None,
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
    }


def _shape(response_id: str, request: ModelRequest, status: str) -> dict[str, Any]:
    """A response without an answer yet."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "model": request.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": request.max_tokens,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto" if request.may_call else "none",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": None,
    }


def _begun(response: dict[str, Any]) -> dict[str, Any]:
    return {**response, "status": "in_progress", "output": [], "incomplete_details": None, "usage": None}
