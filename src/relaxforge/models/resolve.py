"""``--model`` becomes a folder: ``smollm2``, ``tiny``, a path, or a Hugging Face id."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relaxforge.core.errors import ConfigError
from relaxforge.models import packaged, tiny

Say = Callable[[str], None]


def quiet(_: str) -> None:
    """The listener of a caller that wants no progress lines."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder in Hugging Face layout (``config.json``, weights, tokenizer) and the name that led to it."""

    path: str
    name: str


def default_cache_dir() -> Path:
    """``$XDG_CACHE_HOME/relaxforge/models``, by default ``~/.cache/relaxforge/models``."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "relaxforge" / "models"


def resolve(name: str, cache_dir: str | Path | None = None, *, weights: bool = True, say: Say = quiet) -> ModelFolder:
    """Find or build the folder for ``name``; ``say`` hears one line when that takes more than a moment.

    ``smollm2`` and ``tiny`` are built once under ``cache_dir`` (``None``: ``default_cache_dir()``), also when two runs
    start together; ``tiny`` needs neither torch nor a network. Without ``weights``, none are downloaded for a Hugging
    Face id. Blocks; never imports torch in this process.
    Errors: ``ConfigError``.
    """
    cache = default_cache_dir() if cache_dir is None else Path(cache_dir).expanduser()
    if name == "smollm2":
        return ModelFolder(str(packaged.folder(cache, say)), name)
    if name == "tiny":
        return ModelFolder(str(tiny.folder(cache)), name)
    path = Path(name).expanduser()
    if path.is_dir():
        return ModelFolder(str(_checked(path)), name)
    if path.exists() or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ConfigError(f"--model {name}: no such folder; give a Hugging Face folder or id, `smollm2` or `tiny`")
    return ModelFolder(_download(name, weights=weights, say=say), name)


def _checked(path: Path) -> Path:
    if not (path / "config.json").is_file():
        found = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
        raise ConfigError(f"--model {path}: the folder has no config.json (it holds {found})")
    return path.resolve()


def _download(name: str, *, weights: bool, say: Say) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    say(f"Fetching {name} from the Hugging Face hub (or its local cache)")
    wanted = ["*.json", "*.jinja", "*.model", "*.txt", *(["*.safetensors"] if weights else [])]
    try:
        return snapshot_download(name, allow_patterns=wanted)
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"--model {name}: there is no folder of that name, and the Hugging Face hub gave no model{offline}: "
            f"{reason}. Give a folder with config.json, a reachable id, `smollm2` or `tiny`"
        ) from error
