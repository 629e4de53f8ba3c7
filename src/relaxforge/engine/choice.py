"""Which model an evaluation asks for, read from the JSON of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from relaxforge.core.errors import ConfigError

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
Temperature = Annotated[float, msgspec.Meta(ge=0, le=10)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=7 * 24 * 3600)]
Tokens = Annotated[int, msgspec.Meta(gt=0, le=100_000_000)]

T = TypeVar("T")


class Upstream(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A hosted model: an OpenAI-compatible Chat Completions API.

    ``api_key_secret`` names the secret of the environment that holds its key; ``None``: no key is sent.
    """

    model: Text
    base_url: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    api_key_secret: Text | None = None


class _Model(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    engine: Literal["local", "scripted"] | None = None
    model: Text | None = None
    replies: Text | None = None
    upstream: Upstream | None = None
    temperature: Temperature = 1.0
    top_p: Share = 1.0
    top_k: int = -1


class Budget(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What one attempt may use; ``None`` leaves what the environment or the model says."""

    timeout_s: Seconds | None = None
    """Seconds that the agent may be active."""
    max_response_tokens: Tokens = 1024
    """Tokens of one answer."""
    max_context_tokens: Tokens | None = None
    """Tokens of one conversation, answers included."""


class Sampled(NamedTuple):
    """How answers are sampled; the meaning is that of ``core.turns.Sampling``."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1


UNCHANGED = Sampled()


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """An engine of ours (``engine`` and ``model``), or an ``upstream``. ``replies`` is a path in the bundle."""

    engine: Literal["local", "scripted", "hosted"]
    model: str
    replies: str | None = None
    upstream: Upstream | None = None
    sampling: Sampled = UNCHANGED

    @property
    def label(self) -> str:
        """What to call the model in lists."""
        return f"scripted ({self.model})" if self.engine == "scripted" else self.model


def read_model(value: Mapping[str, Any]) -> ModelChoice:
    """``{"engine": "local"|"scripted", "model": ..., "replies": ...}`` or ``{"upstream": {...}}``, and sampling.

    Errors: ``ConfigError`` saying what is wrong where.
    """
    found = _read(value, _Model, "model")
    sampling = Sampled(found.temperature, found.top_p, found.top_k)
    if (found.engine is None) == (found.upstream is None):
        raise ConfigError('model: give either "engine" (local or scripted) or "upstream" (a hosted model)')
    if found.upstream is not None:
        if found.model is not None or found.replies is not None:
            raise ConfigError('model: beside "upstream" neither "model" nor "replies" means anything; leave it out')
        _check_url(found.upstream.base_url)
        return ModelChoice("hosted", found.upstream.model, upstream=found.upstream, sampling=sampling)
    assert found.engine is not None  # noqa: S101  (one of the two is set)
    if found.replies is not None and found.engine != "scripted":
        raise ConfigError('model: "replies" belongs to the scripted engine')
    if found.replies is not None and not _inside(found.replies):
        raise ConfigError(f'model: "replies" must be a path inside the bundle, got {found.replies!r}')
    return ModelChoice(found.engine, found.model or "tiny", found.replies, sampling=sampling)


def read_budget(value: Mapping[str, Any]) -> Budget:
    """Errors: ``ConfigError``."""
    return _read(value, Budget, "budget")


def _read(value: Mapping[str, Any], kind: type[T], what: str) -> T:
    try:
        return msgspec.convert(dict(value), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{what}: {error}") from None


def _check_url(text: str) -> None:
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or "@" in parts.netloc:
        raise ConfigError("model: upstream.baseUrl must be an http or https address without a password in it")


def _inside(path: str) -> bool:
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts and "\0" not in path
