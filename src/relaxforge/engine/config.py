"""How tokens are generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from relaxforge.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Which engine samples, and what it may use."""

    engine: Literal["local", "scripted"] = "local"
    """Who samples: `local` runs the model in a process of its own, `scripted` answers from a file without a model."""

    scripted_replies: str | None = None
    """JSONL file of rules for the scripted engine. None uses the few built-in replies."""

    engine_device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the local engine computes; `auto` is cuda where there is one."""

    engine_dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Precision of the local engine's weights and cache; `auto` is the one in the model's config.json."""

    engine_max_batch_tokens: int | None = None
    """Most tokens in one step of the local engine. None is 1024 on cpu and 8192 on cuda."""

    engine_cache_tokens: int | None = None
    """Size of the local engine's cache in tokens. None is concurrent Sessions times the context limit, as far as half
    of the free memory allows."""

    engine_log: str | None = None
    """File for what the engine process prints. None is engine.log in the run directory."""

    def __post_init__(self) -> None:
        for name in ("engine_max_batch_tokens", "engine_cache_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{name.replace('_', '-')} must be > 0 tokens, got {value}")
        if self.scripted_replies is not None and self.engine != "scripted":
            raise ConfigError(f"--scripted-replies needs --engine scripted, but --engine is {self.engine}")


@dataclass(frozen=True, slots=True)
class Workload:
    """What the engine must hold: requests at the same time, and tokens of the longest (prompt and answer).

    ``max_context`` ``None`` is the model's own limit.
    """

    max_concurrent: int
    max_context: int | None = None
