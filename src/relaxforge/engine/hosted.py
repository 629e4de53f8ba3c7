"""A hosted model: somebody else's OpenAI-compatible Chat Completions API. Messages in, a message out, no tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from relaxforge.core.errors import EngineError, RelaxForgeError, RequestError
from relaxforge.core.messages import Message, ModelRequest, ToolCall, canonical_arguments, chat_message, chat_tool
from relaxforge.core.ports import ignore_chunk
from relaxforge.core.turns import (
    Capabilities,
    Capacity,
    GenerateRequest,
    Generation,
    HostedAnswer,
    Sampling,
    TokenChunk,
    TurnFinish,
    Usage,
    WeightUpdate,
)

TRIES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
TIMEOUT_S = 600.0
EXCERPT = 300
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_WORTH_REPEATING = (408, 409, 425, 429)
_OUR_REQUEST = (400, 413, 422)
"""What a provider says when the conversation is at fault; the agent gets to hear it."""


class HostedEngine:
    """A ``HostedModel``, and an ``Engine`` as far as one without tokens can be: it cannot sample ids or take weights.

    Requests that fail for reasons of the provider (429, 5xx, no connection) are repeated, ``TRIES`` times in all.
    """

    capabilities = Capabilities(per_request_seed=False, cached_tokens=False, max_context=None)

    def __init__(
        self, base_url: str, model: str, api_key: str | None = None, *, first_pause_s: float = FIRST_PAUSE_S
    ) -> None:
        self._model = model
        self._key = api_key or ""
        self._pause_s = first_pause_s
        self._running: dict[str, asyncio.Task[HostedAnswer]] = {}
        self._aborted: set[str] = set()
        self._client = httpx.AsyncClient(
            base_url=base_url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(TIMEOUT_S, connect=30.0),
            trust_env=urlsplit(base_url).hostname not in _LOOPBACK,
        )

    async def start(self) -> None:
        """Nothing to start."""

    async def answer(self, request_id: str, request: ModelRequest, sampling: Sampling) -> HostedAnswer:
        body = _body(self._model, request, sampling)
        task = self._running[request_id] = asyncio.create_task(self._tried(body))
        try:
            return await task
        except asyncio.CancelledError:
            if request_id in self._aborted:
                raise EngineError(f"request {request_id}: aborted") from None
            raise
        finally:
            del self._running[request_id]
            self._aborted.discard(request_id)

    async def abort(self, request_id: str) -> None:
        if (task := self._running.get(request_id)) is not None:
            self._aborted.add(request_id)
            task.cancel()

    async def generate(self, request: GenerateRequest, _: Callable[[TokenChunk], None] = ignore_chunk) -> Generation:
        """Refused."""
        raise EngineError(f"request {request.request_id}: a hosted model takes messages and cannot sample token ids")

    async def pause(self) -> None:
        """Nothing of it is ours to pause."""

    async def resume(self) -> None:
        """Nothing was paused."""

    async def load(self, update: WeightUpdate) -> None:
        """Refused."""
        raise EngineError(f"weights {update.version}: a hosted model cannot be trained; use a model of your own")

    async def capacity(self) -> Capacity:
        return Capacity(running=len(self._running), waiting=0)

    async def lost(self) -> RelaxForgeError:
        """Never: its provider may come back."""
        never: asyncio.Future[RelaxForgeError] = asyncio.get_running_loop().create_future()
        return await never

    async def close(self) -> None:
        for request_id in tuple(self._running):
            await self.abort(request_id)
        await self._client.aclose()

    async def _tried(self, body: Mapping[str, Any]) -> HostedAnswer:
        for number in range(TRIES):
            last = number == TRIES - 1
            try:
                response = await self._client.post("chat/completions", json=body)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if last or isinstance(error, httpx.InvalidURL):
                    raise EngineError(f"{self._named}: {type(error).__name__}: {self._clean(str(error))}") from None
                await asyncio.sleep(self._pause(number, None))
                continue
            if response.status_code == httpx.codes.OK:
                return _answer(self._named, response.content)
            if last or not _repeatable(response.status_code):
                raise self._refusal(response)
            await asyncio.sleep(self._pause(number, response.headers.get("retry-after")))
        raise AssertionError("the last try returns or raises")

    def _pause(self, number: int, wish: str | None) -> float:
        own: float = self._pause_s * 2**number
        return min(LONGEST_PAUSE_S, max(own, float(wish)) if wish is not None and wish.isdigit() else own)

    def _refusal(self, response: httpx.Response) -> RelaxForgeError:
        said = self._clean(_said(response.content))
        if response.status_code in _OUR_REQUEST:
            return RequestError(f"the hosted model refuses this request: {said}", code="upstream_refused")
        tries = f" ({TRIES} tries)" if _repeatable(response.status_code) else ""
        return EngineError(f"{self._named} answered {response.status_code}{tries}: {said}")

    @property
    def _named(self) -> str:
        return f"hosted model {self._model} at {self._client.base_url.host}"

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "[redacted]") if self._key else text


def _repeatable(status: int) -> bool:
    return status in _WORTH_REPEATING or status >= httpx.codes.INTERNAL_SERVER_ERROR


def _said(content: bytes) -> str:
    """The provider's own words, as far as they can be found."""
    try:
        error = json.loads(content)["error"]
        text = error["message"] if isinstance(error, dict) else str(error)
    except (ValueError, KeyError, TypeError):
        text = content.decode("utf-8", "replace")
    return " ".join(str(text).split())[:EXCERPT] or "nothing"


def _body(model: str, request: ModelRequest, sampling: Sampling) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [chat_message(message) for message in request.messages],
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    if request.tools:
        body["tools"] = [chat_tool(tool) for tool in request.tools]
        if not request.may_call:
            body["tool_choice"] = "none"
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if (effort := json.loads(request.template_kwargs).get("reasoning_effort")) is not None:
        body["reasoning_effort"] = effort
    return body


def _answer(named: str, content: bytes) -> HostedAnswer:
    try:
        whole = json.loads(content)
        choice = whole["choices"][0]
        message = _message(choice["message"])
        usage = whole.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        counts = Usage(int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0), cached)
        return HostedAnswer(message, _finish(choice.get("finish_reason"), message), counts)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineError(
            f"{named} answered something that is no chat completion ({type(error).__name__}: {error})"
        ) from error


def _message(given: Mapping[str, Any]) -> Message:
    content = given.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    reasoning = given.get("reasoning_content") or given.get("reasoning") or ""
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], canonical_arguments(call["function"].get("arguments") or ""))
        for call in given.get("tool_calls") or ()
    )
    if not isinstance(content, str) or not isinstance(reasoning, str):
        raise TypeError("content is not text")
    return Message("assistant", content=_sound(content), reasoning=_sound(reasoning), tool_calls=calls)


def _sound(text: str) -> str:
    """Text without lone surrogates, which no file and no database can hold."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def _finish(reason: Any, message: Message) -> TurnFinish:
    if reason == "length":
        return "length"
    return "tool_calls" if message.tool_calls else "stop"
