"""The numbered changes of the schema, and which of them a database has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from relaxforge.core.errors import ConfigError

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of ``sql/migrations``; ``sha256`` (hex) is of its bytes, and an applied one never changes again."""

    number: int
    name: str
    sha256: str
    sql: bytes


@cache
def migrations() -> tuple[Migration, ...]:
    """Every migration that this version knows, in order."""
    found = []
    for file in resources.files("relaxforge.store").joinpath("sql", "migrations").iterdir():
        if match := _FILE.fullmatch(file.name):
            content = file.read_bytes()
            found.append(Migration(int(match[1]), match[2], hashlib.sha256(content).hexdigest(), content))
    return tuple(sorted(found, key=lambda migration: migration.number))


def pending(applied: Mapping[int, str], known: Sequence[Migration]) -> list[Migration]:
    """The migrations of ``known`` that are missing in ``applied`` (number -> sha256).

    Errors: ``ConfigError`` when the database has one that this version does not know, or knows with other content.
    """
    by_number = {migration.number: migration for migration in known}
    if unknown := sorted(set(applied) - set(by_number)):
        raise ConfigError(
            f"the database has migration {unknown[-1]:04}, which this version of RelaxForge does not know "
            f"(its last is {max(by_number, default=0):04}); run the version that made it, or a newer one"
        )
    for number, sha256 in applied.items():
        if by_number[number].sha256 != sha256:
            raise ConfigError(
                f"migration {number:04}_{by_number[number].name} was applied with other content (SHA-256 "
                f"{sha256[:12]}..., now {by_number[number].sha256[:12]}...); an applied migration never changes: "
                "restore the file, or start with an empty database"
            )
    return [migration for migration in known if migration.number not in applied]
