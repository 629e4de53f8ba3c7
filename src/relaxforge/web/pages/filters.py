"""Filters in the address of a page. A form sends every field, so an empty one means: not asked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query

from relaxforge.store.findings import Among
from relaxforge.web.errors import Problem
from relaxforge.web.pages.html import address


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which Trials a page is about, as the address says it; empty strings do not restrict."""

    environment: str = ""
    version: str = ""
    run: str = ""
    training_run: str = ""
    since: str = ""

    @property
    def given(self) -> bool:
        return any((self.environment, self.version, self.run, self.training_run, self.since))

    @property
    def among(self) -> Among:
        """For the store. Errors: ``Problem`` 400 naming the parameter."""
        return Among(
            identity("environment", self.environment),
            identity("version", self.version),
            identity("run", self.run),
            identity("training_run", self.training_run),
            day("since", self.since),
        )

    def address(self, path: str, **more: object) -> str:
        """``path`` with these filters and ``more``."""
        own = {name: getattr(self, name) for name in ("environment", "version", "run", "training_run", "since")}
        return address(path, **{**own, **more})


def evidence(
    environment: str = "", version: str = "", run: str = "", training_run: str = "", since: str = ""
) -> Evidence:
    return Evidence(environment, version, run, training_run, since)


EvidenceFilter = Annotated[Evidence, Depends(evidence)]
From = Annotated[int, Query(alias="from")]
"""The step at which a page of steps begins; any number, the nearest page is shown."""


def identity(name: str, value: str) -> UUID | None:
    """``None`` for nothing. Errors: ``Problem`` 400 for what is no id."""
    if not value.strip():
        return None
    try:
        return UUID(value.strip())
    except ValueError:
        raise Problem(400, "invalid", f"{name} must be an id such as those in our links, got {value[:80]!r}") from None


def day(name: str, value: str) -> datetime | None:
    """The beginning of a day (UTC). Errors: ``Problem`` 400."""
    if not value.strip():
        return None
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        raise Problem(400, "invalid", f"{name} must be a day such as 2026-12-01, got {value[:80]!r}") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
