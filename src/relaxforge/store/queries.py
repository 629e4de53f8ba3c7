"""Named SQL: ``sql/queries/<file>.sql`` holds queries under ``-- name: <query>`` lines."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import LiteralString, cast

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def query(name: str) -> LiteralString:
    """The SQL of ``file.query``. It is our own file, so it counts as literal. Errors: ``KeyError``."""
    file, _, wanted = name.partition(".")
    return _queries(file)[wanted]


@cache
def _queries(file: str) -> dict[str, LiteralString]:
    text = resources.files("relaxforge.store").joinpath("sql", "queries", f"{file}.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)
    return {name: cast("LiteralString", sql.strip()) for name, sql in zip(parts[1::2], parts[2::2], strict=True)}
