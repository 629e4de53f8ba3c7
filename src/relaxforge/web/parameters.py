"""What stands in the address: names that are unknown are refused, lists are read page by page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Query, Request
from fastapi.dependencies.models import Dependant
from pydantic import AwareDatetime

from relaxforge.store.database import Row
from relaxforge.web.errors import Problem

Before = tuple[datetime, UUID]
"""The last row of the page before, by value, so that it may be deleted meanwhile."""

LARGEST_PAGE = 200

Cursor = Annotated[str | None, Query(description="`nextCursor` of the page before")]
Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="most items of this page")]

EnvironmentId = Annotated[UUID | None, Query(alias="environmentId", description="only those of this environment")]
VersionId = Annotated[UUID | None, Query(alias="environmentVersionId", description="only those of this version")]
ConfigurationId = Annotated[UUID | None, Query(alias="evaluatorConfigurationId")]
RunId = Annotated[UUID | None, Query(alias="evaluationRunId", description="only those of this evaluation run")]
TrainingRunId = Annotated[UUID | None, Query(alias="trainingRunId", description="only those of this training run")]
Since = Annotated[AwareDatetime | None, Query(description="only those from this moment on, with a time zone")]
Until = Annotated[AwareDatetime | None, Query(description="only those before this moment, with a time zone")]


async def only_known(request: Request) -> None:
    """Errors: ``Problem`` 400 for a query parameter that the route does not have (it would be ignored), and for NUL."""
    dependant: Dependant | None = getattr(request.scope.get("route"), "dependant", None)
    known = sorted(_names(dependant)) if dependant is not None else []
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        allowed = f"there are {', '.join(known)}" if known else "there are none here"
        raise Problem(
            400,
            "unknown_parameter",
            f"unknown query parameter {unknown[0]!r}; {allowed}",
            errors=[{"path": f"query.{name}", "message": f"unknown; {allowed}"} for name in unknown],
        )
    for name, value in (*request.query_params.multi_items(), *request.path_params.items()):
        if "\0" in str(value):
            raise Problem(400, "invalid", f"{name} contains a NUL character")


def _names(dependant: Dependant) -> set[str]:
    names = {field.alias for field in dependant.query_params}
    return names.union(*(_names(inner) for inner in dependant.dependencies))


def before(cursor: str | None) -> Before | None:
    """Where the next page starts. Errors: ``Problem`` 400 when nobody handed out this cursor."""
    if cursor is None:
        return None
    try:
        moment, _, row = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        found = datetime.fromisoformat(moment), UUID(row)
    except (ValueError, binascii.Error):
        found = None
    if found is None or found[0].tzinfo is None:
        detail = "this cursor was not handed out by us; start again without one"
        raise Problem(400, "invalid", detail, errors=[{"path": "query.cursor", "message": detail}])
    return found


def cursor_after(row: Row, moment: str = "created_at") -> str:
    """The cursor of the page behind ``row``."""
    return base64.urlsafe_b64encode(f"{row[moment].isoformat()} {row['id']}".encode()).decode()


def page(rows: Sequence[Row], limit: int) -> Row:
    """One page of rows that were asked for with ``limit + 1``: the extra one says that there are more."""
    shown = rows[:limit]
    return {"items": shown, "next_cursor": cursor_after(shown[-1]) if len(rows) > limit else None}
