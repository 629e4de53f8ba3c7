"""RUN.toml: the flags of a run, written down. One flat list of keys, named like the flags in snake_case.

Relative paths in a run file start at the folder of the file; relative paths in flags start at the current folder.
The text ``"None"`` stands for None where a setting allows it, as on the command line.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import msgspec

from relaxforge.cli.flags import unknown
from relaxforge.core.errors import ConfigError

PATH_KEYS = frozenset(
    {
        "prompt_data",
        "agent_cwd",
        "scripted_replies",
        "run_dir",
        "save",
        "resume",
        "save_debug_rollout_data",
        "workspace_token_file",
        "database_url_file",
    }
)
"""Keys whose value is a path."""
FUNCTION_KEYS = frozenset({"custom_rm_path", "dynamic_sampling_filter_path"})
"""Keys that name a function, as ``package.module.function`` or as ``path/to/file.py:function``."""


def read_run_file(path: Path, types: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run file by key, typed and with absolute paths.

    ``types`` maps every known key to the type of its value. Errors: ``ConfigError`` naming the file, and the line or
    the key.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        hint = "`relaxforge init DIR` writes one to start from"
        raise ConfigError(f"{path}: cannot read this run file: {error.strerror}; {hint}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid UTF-8 (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    folder = path.resolve().parent
    values = {key: _from(folder, key, _typed(path, key, value, types)) for key, value in given.items()}
    return {"agent_cwd": str(folder), **values}


def _typed(path: Path, key: str, value: Any, types: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        raise ConfigError(f"{path}: [{key}] is a table, but a run file is one flat list of `name = value` lines")
    if key not in types:
        raise unknown(key, types, str(path))
    if value == "None" and NoneType in get_args(types[key]):
        return None
    try:
        return msgspec.convert(value, types[key])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {key} = {value!r}: {error}") from None


def _from(folder: Path, key: str, value: Any) -> Any:
    if key == "eval_prompt_data":  # NAME PATH pairs
        return tuple(_absolute(folder, item) if place % 2 else item for place, item in enumerate(value))
    if isinstance(value, str) and _names_file(key, value):
        return _absolute(folder, value)
    return value


def _names_file(key: str, value: str) -> bool:
    if key in FUNCTION_KEYS:
        return ".py:" in value
    if key == "model":
        # What is neither packaged nor a hub id is a folder, and says so by starting with a dot, a tilde or a slash.
        return value.startswith((".", "~", "/"))
    return key in PATH_KEYS and (key, value) != ("resume", "latest")


def _absolute(folder: Path, value: str) -> str:
    return os.path.normpath(folder / Path(value).expanduser())
