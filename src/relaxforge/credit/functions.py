"""Functions that users name in a flag."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from relaxforge.core.errors import ConfigError


def load_function(path: str, flag: str) -> Callable[..., Any]:
    """The function at ``package.module.function`` or ``path/to/file.py:function``.

    The working directory is importable, as with ``python -m``. Errors: ``ConfigError`` that names ``flag``.
    """
    separator = ":" if ":" in path else "."
    place, _, name = path.rpartition(separator)
    if not place or not name:
        raise ConfigError(f"{flag} {path!r} must look like package.module.function or path/to/file.py:function")
    module = _import(place, flag)
    function = getattr(module, name, None)
    if function is None:
        near = get_close_matches(name, dir(module), n=1)
        raise ConfigError(f"{flag}: {place} has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    if not callable(function):
        raise ConfigError(f"{flag}: {path} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def _import(place: str, flag: str) -> ModuleType:
    try:
        return _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    except (Exception, SystemExit) as error:  # the user's module may raise anything while it is imported
        raise ConfigError(f"{flag}: {place} cannot be imported: {type(error).__name__}: {error}") from error


def _import_module(name: str) -> ModuleType:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # dataclasses and pickle look their module up there
    spec.loader.exec_module(module)
    return module
