"""RUN.toml: the flags of a run, written down. One flat list of keys, named like the flags in snake_case.

Relative paths in a run file start at the folder of the file; relative paths in flags start at the current folder.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from relaxforge.core.errors import ConfigError

PATH_KEYS = frozenset(
    {"prompt_data", "agent_cwd", "scripted_replies", "run_dir", "save", "resume", "save_debug_rollout_data"}
)
"""Keys whose value is a path. ``eval_prompt_data`` (NAME PATH pairs) and ``model`` have rules of their own."""


def read_run_file(path: Path, types: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run file by key, typed and with absolute paths.

    ``types`` maps every known key to the type of its value. Errors: ``ConfigError`` naming the file, and the line or
    the key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: no readable run file: {_reason(error)}; `relaxforge init DIR` writes one") from None
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    folder = path.resolve().parent
    return {key: _from(folder, key, _typed(path, key, value, types)) for key, value in given.items()}


def unknown(name: str, known: Iterable[str], where: str) -> ConfigError:
    """The error for a name that no setting has, with the nearest one that exists."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else "; `relaxforge train --help` lists all"
    return ConfigError(f"{where}: unknown setting {name}{hint}")


def _typed(path: Path, key: str, value: Any, types: Mapping[str, Any]) -> Any:
    if key not in types:
        if isinstance(value, dict):
            raise ConfigError(f"{path}: [{key}] is a table, but a run file is one flat list of `name = value` lines")
        raise unknown(key, types, str(path))
    try:
        return msgspec.convert(value, types[key])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {key} = {value!r}: {error}") from None


def _from(folder: Path, key: str, value: Any) -> Any:
    if key == "eval_prompt_data":
        return tuple(str(folder / item) if place % 2 else item for place, item in enumerate(value))
    if not isinstance(value, str):
        return value
    # A model that is neither packaged nor a hub id is a folder, and says so by starting with a dot.
    names_folder = key == "model" and value.startswith((".", "~"))
    if (key in PATH_KEYS and (key, value) != ("resume", "latest")) or names_folder:
        return str(folder / Path(value).expanduser())
    return value


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else "it is not UTF-8"
