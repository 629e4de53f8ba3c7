"""What an engine must know of a model before anybody loads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaxforge.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Ids from 0 to below ``vocab_size``, ``max_context`` positions (``None``: not said), ids that end an answer."""

    vocab_size: int
    max_context: int | None
    stop_ids: tuple[int, ...]


def read_facts(folder: str) -> ModelFacts:
    """Read ``config.json`` and ``generation_config.json``. Errors: ``ConfigError``."""
    whole = _read(Path(folder) / "config.json")
    config = whole.get("text_config") or whole
    if not isinstance(config.get("vocab_size"), int):
        raise ConfigError(f"--model {folder}: config.json has no vocab_size")
    generation = Path(folder) / "generation_config.json"
    ends = (_read(generation) if generation.is_file() else config).get("eos_token_id")
    stop_ids = ends if isinstance(ends, list) else [ends] if isinstance(ends, int) else []
    return ModelFacts(config["vocab_size"], config.get("max_position_embeddings"), tuple(stop_ids))


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--model: {path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"--model: {path} is not a JSON object")
    return value
