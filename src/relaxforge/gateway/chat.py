"""OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat, as the integration guide narrows it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from typing import Any

import msgspec

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Api, Message, ModelRequest, chat_message
from relaxforge.core.ports import SessionDoor
from relaxforge.core.turns import ModelTurn, TextPiece, TokenLogprob, Usage
from relaxforge.gateway import sse
from relaxforge.gateway.body import Body
from relaxforge.gateway.canonical import is_meant, read_may_call, read_message, read_template_kwargs, read_tools
from relaxforge.gateway.dialect import Headers, retry_hint
from relaxforge.gateway.noise import ALL_NOISE
from relaxforge.gateway.reading import Reading

READ = frozenset(
    {
        "model", "messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort",
        "max_completion_tokens", "max_tokens", "stop", "seed", "logprobs", "stream",
    }
)  # fmt: skip
"""Fields that mean something here; the others are ignored and reported once per Session."""


class Chat:
    """The Chat Completions dialect. ``default_model`` is echoed to a client that names none."""

    api: Api = "chat"
    heartbeat = sse.COMMENT

    def __init__(self, default_model: str, noise: Collection[str] = ALL_NOISE) -> None:
        self._default_model = default_model
        self._noise = noise

    def read(self, body: bytes, headers: Headers, door: SessionDoor) -> ModelRequest:
        fields, reading = Body.parse(body), Reading(self.api, door)
        messages, keys = reading.history(fields.items("messages"), "messages", self._project)
        if not messages:
            raise RequestError("messages holds nothing but noise (see --agentic-normalise)", param="messages")
        may_call = read_may_call(fields.value("tool_choice"))
        if may_call is None:
            reading.ignore("tool_choice")
        reading.ignored(fields, READ)
        return ModelRequest(
            api=self.api,
            model=fields.text("model") or self._default_model,
            messages=tuple(messages),
            retry=retry_hint(headers, fields.digest("messages", b"".join(keys))),
            tools=reading.tools(fields.raw.get("tools", b"null"), "tools", read_tools),
            template_kwargs=read_template_kwargs(
                fields.value("chat_template_kwargs"), "chat_template_kwargs", fields.text("reasoning_effort")
            ),
            max_tokens=_max_tokens(fields),
            stop=fields.stops("stop"),
            seed=fields.integer("seed"),
            logprobs=fields.flag("logprobs"),
            stream=fields.flag("stream"),
            may_call=may_call is not False,
            normalised=reading.keep(),
        )

    def _project(self, value: Any, where: str, noted: Counter[str]) -> Message | tuple[Message, ...]:
        message = read_message(value, where, noted, self._noise)
        return message if is_meant(message) else ()

    def write(self, request: ModelRequest, turn: ModelTurn) -> bytes:
        choice = {"index": 0, "message": chat_message(turn.message), **_ending(turn)}
        return msgspec.json.encode(_completion(request, turn, "chat.completion", choice))

    def error(self, error: RequestError) -> bytes:
        return openai_error(error)

    def live(self, request: ModelRequest) -> _LiveChunks:
        return _LiveChunks(request)

    def failure(self, _: ModelRequest, error: RequestError) -> bytes:
        return b"data: " + openai_error(error) + b"\n\n" + sse.DONE


class _LiveChunks:
    """One complete chunk with usage, whatever ``stream_options`` says; before it, chunks with text alone."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._sent = ""

    def piece(self, piece: TextPiece) -> bytes:
        delta = {"content": piece.text}
        if not self._sent:
            delta |= {"role": "assistant"} | ({"reasoning_content": piece.reasoning} if piece.reasoning else {})
        self._sent += piece.text
        choice = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}
        return sse.frame(_chunk(self._request, piece.request_id, "chat.completion.chunk", choice))

    def rest(self, turn: ModelTurn) -> bytes:
        delta = chat_message(turn.message)
        for index, call in enumerate(delta.get("tool_calls", ())):
            call["index"] = index
        if self._sent:
            delta.pop("reasoning_content", None)
            delta["content"] = turn.message.text[len(self._sent) :]
        choice = {"index": 0, "delta": delta, **_ending(turn)}
        return sse.frame(_completion(self._request, turn, "chat.completion.chunk", choice)) + sse.DONE


def _chunk(request: ModelRequest, request_id: str, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{request_id}",
        "object": kind,
        "created": int(time.time()),
        "model": request.model,
        "choices": [choice],
    }


def _completion(request: ModelRequest, turn: ModelTurn, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {**_chunk(request, turn.request_id, kind, choice), "usage": _usage(turn.usage)}


def _ending(turn: ModelTurn) -> dict[str, Any]:
    shown = None if turn.logprobs is None else {"content": [_logprob(token) for token in turn.logprobs]}
    return {"finish_reason": turn.finish, "logprobs": shown}


def openai_error(error: RequestError) -> bytes:
    """The error envelope of OpenAI's APIs."""
    kinds = {401: "authentication_error", 404: "not_found_error"}
    kind = "internal_error" if error.status >= 500 else kinds.get(error.status, "invalid_request_error")
    return msgspec.json.encode(
        {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}}
    )


def _max_tokens(fields: Body) -> int | None:
    newer = fields.positive("max_completion_tokens")
    return fields.positive("max_tokens") if newer is None else newer


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
