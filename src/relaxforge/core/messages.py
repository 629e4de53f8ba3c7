"""Canonical conversations: what a message means, whichever API and client spelled it.

Identity is meaning. ``Message.exact`` covers everything a template may render; ``Message.lenient`` leaves out what
clients are known to change when they echo an answer (reasoning, surrounding white space, tool-call ids).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from relaxforge.core import strict_json

Role = Literal["system", "user", "assistant", "tool"]
Api = Literal["chat", "responses", "messages"]

DIGEST_BYTES = 16


def canonical_json(value: Any) -> str:
    """Compact JSON with sorted keys: the one spelling used for identity. Integral floats below 2**53 become ints."""
    return json.dumps(_plain(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def canonical_arguments(text: str) -> str:
    """Tool-call arguments as identity sees them, the same for a parsed answer and for its echo.

    A JSON object becomes its canonical text, nothing at all becomes ``{}``, anything else stays as it is.
    """
    if not text.strip():
        return "{}"
    try:
        value = strict_json.loads(text)
    except ValueError:
        return text
    return canonical_json(value) if isinstance(value, dict) else text


def digest(*parts: bytes) -> bytes:
    """16-byte BLAKE2b over length-prefixed parts, so that no two lists of parts collide by concatenation."""
    state = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function call of an assistant message.

    ``arguments`` is canonical JSON text when it holds a JSON object; any other text is kept as it was sent.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image by content: ``digest`` (hex SHA-256 of the bytes, or of the URL text) is its identity.

    ``where`` is the path under which a request first held it, for errors.
    """

    url: str
    digest: str
    where: str = field(default="", compare=False)


Part = TextPart | ImagePart
Content = str | tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """One canonical message.

    ``content`` is a string; a tuple of parts only where an image is among them. ``reasoning`` and ``tool_calls``
    belong to the assistant role, ``tool_call_id`` to the tool role. ``exact`` and ``lenient`` are 16-byte digests,
    each computed once.
    """

    role: Role
    content: Content = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    exact: bytes = field(init=False, repr=False, compare=False, default=b"")
    _lenient: bytes = field(init=False, repr=False, compare=False, default=b"")

    def __post_init__(self) -> None:
        calls = [[call.name, call.arguments] for call in self.tool_calls]
        ids = [[call.id for call in self.tool_calls], self.tool_call_id]
        exact = [self.role, _identity(self.content, strip=False), self.reasoning, calls, ids]
        object.__setattr__(self, "exact", _digest_json(exact))

    @property
    def lenient(self) -> bytes:
        """The digest without what clients change; computed when it is first asked for, which is rare."""
        if not self._lenient:
            calls = [[call.name, call.arguments] for call in self.tool_calls]
            value = [self.role, _identity(self.content, strip=True), calls]
            object.__setattr__(self, "_lenient", _digest_json(value))
        return self._lenient

    @property
    def text(self) -> str:
        """The text of the content, images left out."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        if isinstance(self.content, str):
            return ()
        return tuple(part for part in self.content if isinstance(part, ImagePart))


def _identity(content: Content, *, strip: bool) -> Any:
    if isinstance(content, str):
        return content.strip() if strip else content
    return [
        ["text", part.text.strip() if strip else part.text] if isinstance(part, TextPart) else ["image", part.digest]
        for part in content
    ]


def _digest_json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the agent offers. ``parameters`` is the canonical JSON text of its schema."""

    name: str
    description: str | None
    parameters: str


@dataclass(frozen=True, slots=True)
class RetryHint:
    """What a request says about being a repetition. ``body`` is the digest of the whole request body."""

    body: bytes
    retry_count: int = 0
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model request in canonical form.

    ``template_kwargs`` is canonical JSON text of an object. ``max_tokens`` counts generated tokens, ``None`` leaves
    the run's default. ``normalised`` counts, by cause, what canonicalisation changed in messages not seen before.
    """

    api: Api
    model: str
    messages: tuple[Message, ...]
    retry: RetryHint
    tools: tuple[Tool, ...] = ()
    template_kwargs: str = "{}"
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: bool = False
    stream: bool = False
    """Whether the client takes the answer as server-sent events."""
    may_call: bool = True
    """False when the client asked for no tool call (``tool_choice`` none): tools are shown, calls stay text."""
    normalised: Mapping[str, int] = field(default_factory=dict)

    @property
    def seed_digest(self) -> bytes:
        """Identity of tools and template arguments: the root of the subtree this request belongs to."""
        tools = [[tool.name, tool.description, tool.parameters] for tool in self.tools]
        return _digest_json([tools, self.template_kwargs])


def chat_message(message: Message) -> dict[str, Any]:
    """The message in Chat Completions shape: for dumps, answers, and records of an explicit export."""
    shaped: dict[str, Any] = {"role": message.role}
    if isinstance(message.content, str):
        empty_call = message.role == "assistant" and not message.content and message.tool_calls
        shaped["content"] = None if empty_call else message.content
    else:
        shaped["content"] = [
            {"type": "text", "text": part.text}
            if isinstance(part, TextPart)
            else {"type": "image_url", "image_url": {"url": part.url}}
            for part in message.content
        ]
    if message.reasoning:
        shaped["reasoning_content"] = message.reasoning
    if message.tool_calls:
        shaped["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        shaped["tool_call_id"] = message.tool_call_id
    return shaped


def chat_tool(tool: Tool) -> dict[str, Any]:
    """The tool in Chat Completions shape (``{"type": "function", "function": {...}}``)."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = json.loads(tool.parameters)
    return {"type": "function", "function": function}
