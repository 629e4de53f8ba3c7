"""OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat, as the integration guide narrows it."""

from __future__ import annotations

import time
from collections import Counter
from hashlib import blake2b
from typing import Any

import msgspec

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import DIGEST_BYTES, Api, ModelRequest, Tool, chat_message
from relaxforge.core.ports import SessionDoor
from relaxforge.core.turns import ModelTurn, TokenLogprob, Usage
from relaxforge.gateway.body import Body
from relaxforge.gateway.canonical import read_messages, read_template_kwargs, read_tools
from relaxforge.gateway.dialect import Headers, retry_hint

READ = frozenset(
    {
        "model", "messages", "tools", "chat_template_kwargs", "max_completion_tokens", "max_tokens", "stop", "seed",
        "logprobs", "stream",
    }
)  # fmt: skip
"""Fields that mean something here; the others are ignored and reported once per Session."""


class Chat:
    """The Chat Completions dialect. ``default_model`` is echoed to a client that names none."""

    api: Api = "chat"

    def __init__(self, default_model: str) -> None:
        self._default_model = default_model

    def read(self, body: bytes, headers: Headers, door: SessionDoor) -> ModelRequest:
        fields = Body.parse(body)
        if fields.flag("stream"):
            raise RequestError(
                "stream=true is not supported yet; leave stream out or set it to false",
                code="stream_unsupported",
                param="stream",
            )
        noted: Counter[str] = Counter()
        messages, keys = read_messages(fields.items("messages"), door.known, noted)
        return ModelRequest(
            api=self.api,
            model=fields.text("model") or self._default_model,
            messages=messages,
            retry=retry_hint(headers, fields.digest("messages", keys)),
            tools=_tools(fields, door, noted),
            template_kwargs=read_template_kwargs(fields.value("chat_template_kwargs"), "chat_template_kwargs"),
            max_tokens=_max_tokens(fields),
            stop=fields.stops("stop"),
            seed=fields.integer("seed"),
            logprobs=fields.flag("logprobs"),
            normalised=+(noted + _ignored(fields, door)),
        )

    def write(self, request: ModelRequest, turn: ModelTurn) -> bytes:
        choice = {
            "index": 0,
            "message": chat_message(turn.message),
            "finish_reason": turn.finish,
            "logprobs": None if turn.logprobs is None else {"content": [_logprob(token) for token in turn.logprobs]},
        }
        return msgspec.json.encode(
            {
                "id": f"chatcmpl-{turn.request_id}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": request.model,
                "choices": [choice],
                "usage": _usage(turn.usage),
            }
        )

    def error(self, error: RequestError) -> bytes:
        return openai_error(error)


def openai_error(error: RequestError) -> bytes:
    """The error envelope of OpenAI's APIs."""
    kinds = {401: "authentication_error", 404: "not_found_error"}
    kind = "internal_error" if error.status >= 500 else kinds.get(error.status, "invalid_request_error")
    return msgspec.json.encode(
        {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}}
    )


def _tools(fields: Body, door: SessionDoor, noted: Counter[str]) -> tuple[Tool, ...]:
    key = blake2b(fields.raw.get("tools", b""), digest_size=DIGEST_BYTES).digest()
    tools = door.known_tools.get(key)
    if tools is None:
        tools = door.known_tools[key] = read_tools(fields.value("tools"), "tools", noted)
    return tools


def _max_tokens(fields: Body) -> int | None:
    newer = fields.positive("max_completion_tokens")
    return fields.positive("max_tokens") if newer is None else newer


def _ignored(fields: Body, door: SessionDoor) -> Counter[str]:
    names = fields.ignored(READ) - door.known_fields
    door.known_fields.update(names)
    return Counter(f"ignored_field:{name[:64]}" for name in names)


def _usage(usage: Usage) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        shown["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    return shown


def _logprob(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.raw), "top_logprobs": []}
