"""Anthropic Messages: https://docs.anthropic.com/en/api/messages, as the integration guide narrows it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Api, ModelRequest
from relaxforge.core.ports import SessionDoor
from relaxforge.core.turns import ModelTurn
from relaxforge.gateway import sse
from relaxforge.gateway.body import Body, kind
from relaxforge.gateway.canonical import read_may_call, read_template_kwargs
from relaxforge.gateway.dialect import Headers, retry_hint
from relaxforge.gateway.live import LiveEvents
from relaxforge.gateway.message_blocks import output_blocks, read_block_tools, read_message, read_system
from relaxforge.gateway.noise import ALL_NOISE
from relaxforge.gateway.reading import Reading

READ = frozenset(
    {
        "model", "messages", "system", "tools", "tool_choice", "chat_template_kwargs", "thinking", "output_config",
        "max_tokens", "stop_sequences", "stream", "thread",
    }
)  # fmt: skip
"""Fields that mean something here; the others are ignored and reported once per Session."""

_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_THINKING = {"disabled": "none", "enabled": "medium", "adaptive": "medium"}
"""What each type of ``thinking`` asks for, as an effort."""


class Messages:
    """The Messages dialect. ``default_model`` is echoed to a client that names none."""

    api: Api = "messages"
    heartbeat = sse.named({"type": "ping"})

    def __init__(self, default_model: str, noise: Collection[str] = ALL_NOISE) -> None:
        self._default_model = default_model
        self._noise = noise

    def read(self, body: bytes, headers: Headers, door: SessionDoor) -> ModelRequest:
        fields, reading = Body.parse(body), Reading(self.api, door)
        if fields.positive("max_tokens") is None:
            raise RequestError("max_tokens is required: the most tokens to sample", param="max_tokens")
        if fields.value("thread") is not None:
            # The code is Anthropic's own: by it their client knows that it has to send the full history from now on.
            raise RequestError(
                "thread is not supported: no conversation is kept; send the full messages",
                code="thread_unsupported_request",
                param="thread",
            )
        request = self._request(fields, headers, reading)
        return replace(request, normalised=reading.keep())

    def read_to_count(self, body: bytes, headers: Headers, door: SessionDoor) -> ModelRequest:
        """The same without a limit; the Session learns nothing from it."""
        return self._request(Body.parse(body), headers, Reading(self.api, door))

    def _request(self, fields: Body, headers: Headers, reading: Reading) -> ModelRequest:
        system = reading.field(fields, "system", partial(read_system, noise=self._noise))
        history, keys = reading.history(fields.items("messages"), "messages", partial(read_message, noise=self._noise))
        if not history:
            raise RequestError("messages holds nothing that the model could be shown", param="messages")
        may_call = read_may_call(fields.value("tool_choice"))
        if may_call is None:
            reading.ignore("tool_choice")
        reading.ignored(fields, READ)
        return ModelRequest(
            api=self.api,
            model=fields.text("model") or self._default_model,
            messages=reading.merged([*system, *history]),
            retry=retry_hint(headers, fields.digest("messages", b"".join(keys))),
            tools=reading.tools(fields.raw.get("tools", b"null"), "tools", read_block_tools),
            template_kwargs=read_template_kwargs(
                fields.value("chat_template_kwargs"), "chat_template_kwargs", _effort(fields, reading)
            ),
            max_tokens=fields.positive("max_tokens"),
            stop=fields.stops("stop_sequences"),
            stream=fields.flag("stream"),
            may_call=may_call is not False,
        )

    def write(self, request: ModelRequest, turn: ModelTurn) -> bytes:
        return msgspec.json.encode(_message(request, turn, output_blocks(turn), **_ending(request, turn)))

    def error(self, error: RequestError) -> bytes:
        return msgspec.json.encode(_error(error))

    def live(self, request: ModelRequest) -> LiveEvents:
        return LiveEvents(partial(_events, request), _with_text, _encoded)

    def failure(self, _: ModelRequest, error: RequestError) -> bytes:
        return sse.named(_error(error))


def _events(request: ModelRequest, turn: ModelTurn) -> list[dict[str, Any]]:
    begun = _message(request, turn, [], stop_reason=None, stop_sequence=None)
    begun["usage"] = {**begun["usage"], "output_tokens": 0}
    return [
        {"type": "message_start", "message": begun},
        *(event for index, block in enumerate(output_blocks(turn)) for event in _block_events(block, index)),
        {"type": "message_delta", "delta": _ending(request, turn), "usage": _usage(turn)},
        {"type": "message_stop"},
    ]


def _with_text(event: dict[str, Any], text: str) -> dict[str, Any] | None:
    if event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
        return {**event, "delta": {"type": "text_delta", "text": text}}
    return None


def _encoded(events: Sequence[dict[str, Any]], _: int) -> bytes:
    return b"".join(map(sse.named, events))


def _effort(fields: Body, reading: Reading) -> str | None:
    """What ``thinking`` and ``output_config.effort`` ask for: off wins, then the effort that is named."""
    thinking, output = _object(fields, "thinking"), _object(fields, "output_config")
    named, effort = thinking.get("type"), output.get("effort")
    if effort is not None and not isinstance(effort, str):
        raise RequestError(f"output_config.effort must be a string, got {kind(effort)}", param="output_config.effort")
    if thinking and not isinstance(named, str):
        raise RequestError(f"thinking.type must be one of {', '.join(_THINKING)}", param="thinking.type")
    switched = _THINKING.get(named or "")
    if thinking and switched is None:
        reading.ignore("thinking")
    return switched if switched == "none" else effort or switched


def _object(fields: Body, name: str) -> dict[str, Any]:
    value = fields.value(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"{name} must be an object, got {kind(value)}", param=name)
    return value


def _message(request: ModelRequest, turn: ModelTurn, blocks: list[dict[str, Any]], **ending: Any) -> dict[str, Any]:
    return {
        "id": f"msg_{turn.request_id}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": blocks,
        **ending,
        "usage": _usage(turn),
    }


def _ending(request: ModelRequest, turn: ModelTurn) -> dict[str, Any]:
    if turn.finish == "stop" and turn.stop_match in request.stop:
        return {"stop_reason": "stop_sequence", "stop_sequence": turn.stop_match}
    reasons = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
    return {"stop_reason": reasons[turn.finish], "stop_sequence": None}


def _usage(turn: ModelTurn) -> dict[str, Any]:
    """In this API, what came from a cache is not part of ``input_tokens``."""
    cached = turn.usage.cached_tokens or 0
    return {
        "input_tokens": turn.usage.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": turn.usage.completion_tokens,
    }


def _block_events(block: dict[str, Any], index: int) -> list[dict[str, Any]]:
    """One block, each text of it in one delta."""
    match block["type"]:
        case "thinking":
            empty = {**block, "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use":
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": bytes(block["input"]).decode()}]
        case _:
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": block["text"]}]
    return [
        {"type": "content_block_start", "index": index, "content_block": empty},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _error(error: RequestError) -> dict[str, Any]:
    named = _ERRORS.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    return {
        "type": "error",
        "error": {
            "type": named,
            "message": str(error),
            "details": {"error_code": error.code, "param": error.param},
        },
        "request_id": None,
    }
