"""Argument values of formats that write them without quotes: the tool's JSON schema says which are strings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from relaxforge.core import strict_json
from relaxforge.core.messages import Tool

_PYTHON = {"True": True, "False": False, "None": None}
_KINDS = {bool: "boolean", int: "number", float: "number", list: "array", dict: "object", type(None): "null"}


def typed(text: str, kinds: frozenset[str]) -> Any:
    """``text`` as a value of one of ``kinds``, which are names of JSON schema types; none of them: any type.

    A string is never unquoted: what may only be a string, or is no JSON, stays as it is.
    """
    try:
        value = strict_json.loads(text)
    except ValueError:
        value = _PYTHON.get(text, text) if kinds else text
    if isinstance(value, str):
        return text
    fits = not kinds or _KINDS[type(value)] in kinds
    return text if "string" in kinds and not fits else value


def kinds_of(tools: tuple[Tool, ...], name: str) -> dict[str, frozenset[str]]:
    """For each parameter of the tool ``name``: the types that its schema names, empty where it names none."""
    found = next((tool.parameters for tool in tools if tool.name == name), "{}")
    return _kinds_of(found)


@lru_cache(maxsize=256)
def _kinds_of(parameters: str) -> dict[str, frozenset[str]]:
    schema = json.loads(parameters)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {key: frozenset(_kinds(value)) for key, value in properties.items()}


def _kinds(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    named = schema.get("type")
    for kind in named if isinstance(named, list) else [named]:
        if isinstance(kind, str):
            yield "number" if kind == "integer" else kind
    for choice in ("anyOf", "oneOf"):
        options = schema.get(choice)
        for option in options if isinstance(options, list) else []:
            yield from _kinds(option)
    if named is None and isinstance(schema.get("enum"), list):
        yield from ("string" if isinstance(value, str) else _KINDS[type(value)] for value in schema["enum"])
