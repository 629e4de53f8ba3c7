"""What ``environment.toml`` says: the agent, the world, the evaluator, the tasks and the secrets they need."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Any, TypeVar, get_type_hints

from relaxforge.core.errors import BundleError
from relaxforge.core.sessions import RESERVED_PREFIX

NAME = "environment.toml"
LONGEST_S = 86_400.0
"""Seconds that a time limit may be: one day."""

T = TypeVar("T")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STAGE = re.compile(r"stage_[A-Za-z0-9_.-]{1,94}")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_KINDS: Mapping[str, tuple[Any, str]] = {
    "str": (str, "a string"),
    "float": ((int, float), "a number of seconds"),
    "tuple[str, ...]": (list, "a list of strings"),
}


@dataclass(frozen=True, slots=True)
class AgentPart:
    """The program under evaluation; ``command`` is run by ``bash -c`` in ``cwd`` of a fresh workspace."""

    command: str
    name: str = "agent"
    version: str = "1"
    cwd: str = "."
    env: tuple[str, ...] = ()
    timeout_s: float = 600.0
    startup_timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class WorldPart:
    """Fills ``RELAX_WORLD_DIR`` before the agent starts, from ``RELAX_SEED`` alone."""

    command: str
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class EvaluatorPart:
    """Judges what an agent left: a ``command``, or the dotted path of a ``python`` function inside ``folder``."""

    command: str = ""
    python: str = ""
    folder: str = "evaluator"
    timeout_s: float = 60.0
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TasksPart:
    """Where the tasks stand and which keys of a row mean what; ``label_key`` is for the evaluator alone."""

    path: str = ""
    input_key: str = "input"
    metadata_key: str = "metadata"
    label_key: str = ""


@dataclass(frozen=True, slots=True)
class SecretsPart:
    """Names of variables whose values live encrypted with the environment."""

    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole ``environment.toml``, checked. ``inline_tasks`` are its ``[[task]]`` tables, when there are any."""

    name: str
    agent: AgentPart
    description: str = ""
    world: WorldPart | None = None
    evaluator: EvaluatorPart | None = None
    tasks: TasksPart = field(default_factory=TasksPart)
    inline_tasks: tuple[dict[str, Any], ...] = ()
    secrets: SecretsPart = field(default_factory=SecretsPart)


_PARTS: Mapping[str, type[Any]] = {
    "agent": AgentPart,
    "world": WorldPart,
    "evaluator": EvaluatorPart,
    "tasks": TasksPart,
    "secrets": SecretsPart,
}
_KEYS = ("name", "description", *_PARTS, "task")


def read_manifest(text: str) -> Manifest:
    """The manifest that ``text`` spells. Errors: ``BundleError`` with the key and what it may be."""
    try:
        given = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BundleError(f"{NAME} is not valid TOML: {error}") from None
    _known(given, _KEYS, "")
    parts = {key: _part(kind, given[key], key) for key, kind in _PARTS.items() if key in given}
    if "agent" not in parts:
        raise BundleError(f'{NAME} has no [agent]; say how to start it: command = "python agent.py"')
    manifest = Manifest(
        name=_text(given, "name"),
        description=_value(given.get("description", ""), "str", "description"),
        inline_tasks=_inline(given.get("task", [])),
        **parts,
    )
    _check(manifest)
    return manifest


def _part(kind: type[T], given: Any, where: str) -> T:
    if not isinstance(given, dict):
        raise BundleError(f"{NAME}: {where} must be a table: write [{where}]")
    names = {spec.name: spec for spec in fields(kind)}  # type: ignore[arg-type]
    _known(given, tuple(names), f"{where}.")
    hints = get_type_hints(kind)
    for name, spec in names.items():
        if name not in given and spec.default is MISSING:
            raise BundleError(f"{NAME}: {where}.{name} is missing")
    return kind(**{key: _value(value, _spelled(hints[key]), f"{where}.{key}") for key, value in given.items()})


def _spelled(hint: Any) -> str:
    return hint.__name__ if hint in (str, float) else str(hint)


def _value(value: Any, kind: str, where: str) -> Any:
    expected, words = _KINDS[kind]
    if not isinstance(value, expected) or isinstance(value, bool):
        raise BundleError(f"{NAME}: {where} must be {words}, got {value!r:.60}")
    if kind == "tuple[str, ...]":
        return tuple(_value(item, "str", f"{where}[{number}]") for number, item in enumerate(value))
    if kind == "float" and not 0 < value <= LONGEST_S:
        raise BundleError(f"{NAME}: {where} must be above 0 and at most {LONGEST_S:g} seconds, got {value}")
    if kind == "str" and "\0" in value:
        raise BundleError(f"{NAME}: {where} contains a NUL character")
    return float(value) if kind == "float" else value


def _known(given: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
    for key in given:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"known are {', '.join(known)}"
            raise BundleError(f"{NAME}: unknown key {prefix}{key}; {hint}")


def _text(given: Mapping[str, Any], key: str) -> str:
    value: str = _value(given.get(key, ""), "str", key).strip()
    if not value or len(value) > 100:
        raise BundleError(f"{NAME}: {key} must have 1 to 100 characters")
    return value


def _inline(given: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(given, list) or not all(isinstance(row, dict) for row in given):
        raise BundleError(f"{NAME}: task must be a list of tables: write [[task]]")
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BundleError(f"{NAME}: a [[task]] cannot be written as JSON: {error}") from None
    return tuple(given)


def _check(manifest: Manifest) -> None:
    agent, world, evaluator, tasks = manifest.agent, manifest.world, manifest.evaluator, manifest.tasks
    _command(agent.command, "agent.command")
    inside(agent.cwd, "agent.cwd")
    for entry in agent.env:
        key, equals, _ = entry.partition("=")
        _variable(key, "agent.env")
        if not equals:
            raise BundleError(
                f"{NAME}: agent.env {entry!r} must be KEY=VALUE; a value that nobody may read is a secret"
            )
    if world is not None:
        _command(world.command, "world.command")
    if evaluator is not None:
        _check_evaluator(evaluator)
    if bool(tasks.path) == bool(manifest.inline_tasks):
        raise BundleError(f"{NAME} needs tasks: either [tasks] path, or one [[task]] table for each")
    if tasks.path:
        inside(tasks.path, "tasks.path")
    for name in manifest.secrets.required:
        _variable(name, "secrets.required")


def _check_evaluator(evaluator: EvaluatorPart) -> None:
    if bool(evaluator.command.strip()) == bool(evaluator.python):
        raise BundleError(f"{NAME}: [evaluator] needs either command or python")
    if evaluator.python and not _DOTTED.fullmatch(evaluator.python):
        raise BundleError(
            f"{NAME}: evaluator.python {evaluator.python!r} must be module.function inside evaluator.folder"
        )
    if inside(evaluator.folder, "evaluator.folder") == PurePosixPath("."):
        raise BundleError(f"{NAME}: evaluator.folder must be a folder of its own, so that no agent sees what is in it")
    for stage in evaluator.stages:
        if not _STAGE.fullmatch(stage):
            raise BundleError(
                f"{NAME}: evaluator.stages: {stage!r} must be stage_ and a name of letters, digits, '_', '.' or '-'"
            )


def inside(path: str, where: str) -> PurePosixPath:
    """``path`` as one below the bundle. Errors: ``BundleError`` for absolute paths and for any ``..``."""
    found = PurePosixPath(path)
    if not path or found.is_absolute() or ".." in found.parts or "\\" in path:
        raise BundleError(f"{NAME}: {where} {path!r} must be a relative path inside the bundle, without '..'")
    return found


def _command(command: str, where: str) -> None:
    if not command.strip():
        raise BundleError(f"{NAME}: {where} is empty; give the command that `bash -c` runs")


def _variable(name: str, where: str) -> None:
    if not _VARIABLE.fullmatch(name) or name.startswith(RESERVED_PREFIX):
        raise BundleError(
            f"{NAME}: {where}: {name!r} cannot name a variable; use letters, digits and '_', and not {RESERVED_PREFIX}"
        )
