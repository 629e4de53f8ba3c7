"""Capability gap and partial rewards: only what stands in rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relaxforge.core.sessions import INFRASTRUCTURE
from relaxforge.store import findings
from relaxforge.store.database import Row
from relaxforge.web.caller import Reader, Snapshot
from relaxforge.web.pages.charts import bar_width
from relaxforge.web.pages.choices import environment_choices
from relaxforge.web.pages.filters import Evidence, EvidenceFilter
from relaxforge.web.pages.html import page
from relaxforge.web.pages.outcome import shown
from relaxforge.web.parameters import before, cursor_after

router = APIRouter(include_in_schema=False)

PAGE_ROWS = 50


@router.get("/capability-gap")
async def capability_gap(request: Request, _: Reader, tx: Snapshot, chosen: EvidenceFilter) -> Response:
    rows = await findings.capability_gap(tx, chosen.among)
    counts = await findings.outcome_counts(tx, chosen.among)
    return page(
        request,
        "capability_gap.html",
        title="Capability gap",
        here="capability-gap",
        filter=chosen,
        filtered=chosen.given,
        clear="/capability-gap",
        environment_choices=await environment_choices(tx),
        total=counts.get("ended", 0),
        unlabelled=counts.get("unlabelled", 0),
        capability=_bars([row for row in rows if row["failure_category"] not in INFRASTRUCTURE], chosen),
        infrastructure=_bars([row for row in rows if row["failure_category"] in INFRASTRUCTURE], chosen),
    )


def _bars(rows: Sequence[Row], chosen: Evidence) -> list[dict[str, Any]]:
    most = max((row["trials"] for row in rows), default=0)
    return [
        {
            "category": row["failure_category"],
            "count": row["trials"],
            "width": bar_width(row["trials"], most),
            "url": chosen.address("/trials", category=row["failure_category"]),
        }
        for row in rows
    ]


@router.get("/partial-rewards")
async def partial_rewards(
    request: Request, _: Reader, tx: Snapshot, chosen: EvidenceFilter, cursor: str | None = None
) -> Response:
    among = chosen.among
    found = await findings.partial_rewards(tx, among, before=before(cursor), limit=PAGE_ROWS + 1)
    rows = found[:PAGE_ROWS]
    counts = await findings.outcome_counts(tx, among)
    stages = await findings.stage_names(tx, among)
    return page(
        request,
        "partial_rewards.html",
        title="Partial rewards",
        here="partial-rewards",
        filter=chosen,
        filtered=chosen.given,
        clear="/partial-rewards",
        environment_choices=await environment_choices(tx),
        stages=[_stage(stage, counts.get("ended", 0)) for stage in stages],
        ended=counts.get("ended", 0),
        trials=[shown(row) for row in rows],
        newest=chosen.address("/partial-rewards") if cursor else None,
        next=chosen.address("/partial-rewards", cursor=cursor_after(rows[-1])) if len(found) > PAGE_ROWS else None,
    )


def _stage(stage: Row, ended: int) -> dict[str, Any]:
    return {
        "name": stage["name"],
        "mean": stage["mean"],
        "reported": stage["trials"],
        "missing": max(0, ended - stage["trials"]),
        "width": bar_width(min(stage["mean"] or 0.0, 1.0), 1.0),
    }
