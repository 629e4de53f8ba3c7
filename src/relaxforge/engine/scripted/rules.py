"""The script of the scripted engine: a JSONL file, one rule per line (``docs/scripted-engine.md``)."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from relaxforge.core.errors import ConfigError

Reply = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """What to answer when ``match`` is found in what a Turn added (``None``: always).

    ``replies`` are texts or literal ids, one per request of a Session that hits the rule. ``where`` names its line.
    """

    where: str
    match: re.Pattern[str] | None = None
    replies: tuple[Reply, ...] = ()
    cycle: bool = False
    spread: bool = False
    finish_reason: Literal["stop", "length"] = "stop"
    delay_s: float = 0.0
    tokens_per_s: float | None = None
    error: str | None = None


BUILT_IN = (Rule("the built-in script", replies=("42", "Yes.", "No.", "I do not know."), cycle=True, spread=True),)
"""What the engine says without a script: four short answers in turn, each Session starting at one of its own."""

_KINDS: dict[str, tuple[type, ...]] = {
    "match": (str,), "replies": (list,), "tokens": (list,), "cycle": (bool,), "spread": (bool,),
    "finish_reason": (str,), "delay_s": (int, float), "tokens_per_s": (int, float), "error": (str,),
}  # fmt: skip


def read_rules(path: str | None) -> tuple[Rule, ...]:
    """Read a script; ``None`` is the built-in one. Errors: ``ConfigError`` naming file, line and field."""
    if path is None:
        return BUILT_IN
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")  # JSON text may hold U+2028, which splitlines cuts
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--scripted-replies {path}: cannot be read: {error}") from error
    rules = tuple(_parse(f"{path}:{number}", line) for number, line in enumerate(lines, 1) if line.strip())
    if not rules:
        raise ConfigError(f"--scripted-replies {path}: the file has no rule")
    return rules


def _parse(where: str, line: str) -> Rule:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{where}: a rule is a JSON object, got {type(fields).__name__}")
    _check_fields(where, fields)
    return Rule(
        where=where,
        match=_pattern(where, fields.get("match")),
        replies=_replies(where, fields),
        cycle=fields.get("cycle", False),
        spread=fields.get("spread", False),
        finish_reason=fields.get("finish_reason", "stop"),
        delay_s=float(fields.get("delay_s", 0.0)),
        tokens_per_s=fields.get("tokens_per_s"),
        error=fields.get("error"),
    )


def _check_fields(where: str, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if name not in _KINDS:
            near = difflib.get_close_matches(name, _KINDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; a rule has {', '.join(_KINDS)}"
            raise ConfigError(f"{where}: unknown field {name}{hint}")
        if not isinstance(value, _KINDS[name]) or (isinstance(value, bool) and bool not in _KINDS[name]):
            kinds = " or ".join(kind.__name__ for kind in _KINDS[name])
            raise ConfigError(f"{where}: {name} must be {kinds}, got {json.dumps(value)[:80]}")
    if fields.get("finish_reason", "stop") not in ("stop", "length"):
        raise ConfigError(f"{where}: finish_reason must be stop or length, got {fields['finish_reason']}")
    if fields.get("delay_s", 0) < 0 or fields.get("tokens_per_s", 1) <= 0:
        raise ConfigError(f"{where}: delay_s must be >= 0 and tokens_per_s > 0")


def _pattern(where: str, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise ConfigError(f"{where}: match is not a regular expression: {error}") from error


def _replies(where: str, fields: Mapping[str, Any]) -> tuple[Reply, ...]:
    given = [name for name in ("replies", "tokens", "error") if name in fields]
    if len(given) != 1:
        raise ConfigError(f"{where}: a rule has one of replies, tokens and error, this one has {given or 'none'}")
    if given == ["error"]:
        return ()
    values = fields[given[0]]
    if not values:
        raise ConfigError(f"{where}: {given[0]} is empty")
    if given == ["replies"]:
        if not all(isinstance(value, str) for value in values):
            raise ConfigError(f"{where}: replies must be a list of texts")
        return tuple(values)
    if not all(isinstance(ids, list) and ids and all(type(token) is int for token in ids) for ids in values):
        raise ConfigError(f"{where}: tokens must be a list of non-empty lists of token ids")
    return tuple(tuple(ids) for ids in values)
