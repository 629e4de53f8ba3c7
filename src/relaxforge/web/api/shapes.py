"""What all JSON of the API has in common: camelCase, UTC moments with a Z, nothing unknown accepted."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel

from relaxforge.store.database import Row

T = TypeVar("T")


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Moment = Annotated[
    datetime,
    PlainSerializer(_written, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-12-01T09:30:00.000Z"]}),
]


class Shown(BaseModel):
    """An answer: made from a row by its column names, written in camelCase."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", from_attributes=True)

    @classmethod
    def of(cls, row: Row) -> Self:
        return cls.model_validate(row)


class Asked(BaseModel):
    """A request body; a field that does not exist is refused, and so is what no database can keep."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=False, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: Any) -> Any:
        _check_storable(value)
        return value


def _check_storable(value: Any) -> None:
    """Errors: ``ValueError`` for NUL, lone surrogates and numbers that are not finite, wherever they stand."""
    if isinstance(value, str):
        if "\0" in value or (not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value)):
            raise ValueError("text cannot contain NUL or half a surrogate pair")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("numbers must be finite")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_storable(key)
            _check_storable(item)
    elif isinstance(value, list):
        for item in value:
            _check_storable(item)


class Page(Shown, Generic[T]):
    """One page of a list, newest first."""

    items: list[T]
    next_cursor: str | None = None


class FieldProblem(Shown):
    path: str
    message: str


class ProblemDocument(Shown):
    """Every error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FieldProblem] = []
