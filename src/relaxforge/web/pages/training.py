"""Training runs: their curves, and their Sessions as Trials."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from relaxforge.store import training, trials
from relaxforge.store.database import Row
from relaxforge.web.caller import Reader, Snapshot
from relaxforge.web.pages.charts import Chart, line_chart
from relaxforge.web.pages.html import address, page
from relaxforge.web.pages.outcome import shown
from relaxforge.web.parameters import before, cursor_after

router = APIRouter(include_in_schema=False)

PAGE_ROWS = 50
MOST_CURVES = 8

CURVES: Mapping[str, tuple[str, str]] = {
    "Reward": (r"rollout/raw_reward|eval/[^/]+/reward", "rollout/raw_reward"),
    "Response length, tokens": (r"rollout/response_length/(?:mean|max)", "rollout/response_length/mean"),
    "Failed Sessions per step": (r"rollout/sessions/failed|rollout/failures/.+", "rollout/sessions/failed"),
    "Pass rate": (r"(?:eval/[^/]+/)?passrate/pass[@^]\d+", ""),
    "Truncated answers, share": (r"rollout/truncated_ratio", ""),
    "Seconds per step": (r"perf/step_time", ""),
}
"""What is drawn: the metrics that match, the most important one first."""

COUNTED = re.compile(r"rollout/(?:failures|sessions)/")
"""Counts of a step: a step that says others of its counts but not this one had none of it."""


@router.get("/training-runs")
async def list_runs(request: Request, _: Reader, tx: Snapshot, cursor: str | None = None) -> Response:
    found = await training.list_runs(tx, before=before(cursor), limit=PAGE_ROWS + 1)
    rows = found[:PAGE_ROWS]
    return page(
        request,
        "training_runs.html",
        title="Training runs",
        here="training-runs",
        runs=rows,
        origin=str(request.base_url).rstrip("/"),
        newest="/training-runs" if cursor else None,
        next=address("/training-runs", cursor=cursor_after(rows[-1])) if len(found) > PAGE_ROWS else None,
    )


@router.get("/training-runs/{run_id}")
async def show_run(request: Request, run_id: UUID, _: Reader, tx: Snapshot, cursor: str | None = None) -> Response:
    run = await training.get_run(tx, run_id)
    found = await trials.list_trials(tx, before=before(cursor), limit=PAGE_ROWS + 1, training_run_id=run_id)
    rows, here = found[:PAGE_ROWS], f"/training-runs/{run_id}"
    return page(
        request,
        "training_run.html",
        title=run["name"],
        here="training-runs",
        crumbs=(("Training runs", "/training-runs"), (run["name"], None)),
        run=run,
        charts=await _charts(tx, run_id),
        trials=[shown(row) for row in rows],
        places_shown=False,
        newest=here if cursor else None,
        next=address(here, cursor=cursor_after(rows[-1])) if len(found) > PAGE_ROWS else None,
    )


async def _charts(tx: Snapshot, run_id: UUID) -> list[Chart]:
    known = await training.metric_names(tx, run_id)
    wanted = choose_curves(known)
    names = {name for curves in wanted.values() for name in curves} | {name for name in known if COUNTED.match(name)}
    steps = await training.series(tx, run_id, sorted(name for name in names if not name.startswith("eval/")))
    evaluations = await training.series(
        tx, run_id, sorted(name for name in names if name.startswith("eval/")), kind="eval"
    )
    drawn = [line_chart(title, {name: points([*steps, *evaluations], name) for name in curves})
             for title, curves in wanted.items()]  # fmt: skip
    return [chart for chart in drawn if chart.curves or chart.title in tuple(CURVES)[:3]]


def choose_curves(known: Sequence[str]) -> dict[str, list[str]]:
    """Which of the ``known`` metrics stand in which chart."""
    chosen = {}
    for title, (pattern, first) in CURVES.items():
        fitting = sorted(name for name in known if re.fullmatch(pattern, name))
        fitting.sort(key=lambda name, first=first: name != first)  # type: ignore[misc]
        chosen[title] = fitting[:MOST_CURVES]
    return chosen


def points(rows: Sequence[Row], name: str) -> list[tuple[float, float | None]]:
    """The values of one metric by step; a step that does not report it has none."""
    return [(float(row["step"]), value) for row in rows if (value := _value(row["metrics"], name)) is not None]


def _value(metrics: Mapping[str, Any], name: str) -> float | None:
    value = metrics.get(name)
    if value is not None:
        return float(value)
    counts = [other for other in metrics if COUNTED.match(other) and metrics[other] is not None]
    return 0.0 if counts and COUNTED.match(name) else None
