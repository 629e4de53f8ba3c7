"""Two Trials side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from relaxforge.store import trials
from relaxforge.store.database import Row
from relaxforge.web.caller import Reader, Snapshot
from relaxforge.web.pages.evidence import trajectory_of
from relaxforge.web.pages.filters import From, identity
from relaxforge.web.pages.html import KEYS, fragment, page
from relaxforge.web.pages.outcome import best_and_worst, shown
from relaxforge.web.pages.trajectory import PAGE_SIZE, Comparison, compare, page_start

router = APIRouter(include_in_schema=False)

MOST_CHOICES = 200
COMPARE_KEYS = (*KEYS, ("d", "first divergence"), ("a", "first different action"))


@router.get("/compare")
async def compare_page(
    request: Request, _: Reader, tx: Snapshot, run: str = "", left: str = "", right: str = ""
) -> Response:
    """Without ``left`` and ``right``: the best and the worst attempt of ``run``."""
    first, second, siblings = await _sides(tx, identity("run", run), identity("left", left), identity("right", right))
    sides: dict[str, Any] = {"comparison": None, "left": None, "right": None}
    problem = "Fewer than two attempts have ended, so there is nothing to compare yet."
    if first is not None and second is not None:
        sides = await _compared(tx, first, second)
        problem = ""
    return page(
        request,
        "compare.html",
        title="Compare two Trials",
        here="trials",
        keys=COMPARE_KEYS,
        crumbs=_crumbs(first),
        choices=[shown(row) for row in siblings],
        problem=problem,
        **sides,
        **_rows(sides["comparison"], 1),
    )


@router.get("/compare/steps")
async def compare_steps(
    request: Request,
    _: Reader,
    tx: Snapshot,
    left: UUID,
    right: UUID,
    start: From = 1,
    only: Literal["", "earlier", "later"] = "",
) -> Response:
    sides = await _compared(tx, await trials.get_trial(tx, left), await trials.get_trial(tx, right))
    return fragment(request, "compare_rows.html", **sides, **_rows(sides["comparison"], start, only))


async def _sides(
    tx: Snapshot, run: UUID | None, left: UUID | None, right: UUID | None
) -> tuple[Row | None, Row | None, Sequence[Row]]:
    """Both Trials, and those that could stand there instead."""
    first, second = await _trial(tx, left), await _trial(tx, right)
    siblings = await _siblings(tx, run, first or second)
    pair = best_and_worst(siblings) or ()
    taken = {trial["id"] for trial in (first, second) if trial is not None}
    others = iter([row["id"] for row in pair if row["id"] not in taken])
    first = first or await _trial(tx, next(others, None))
    second = second or await _trial(tx, next(others, None))
    return first, second, siblings


async def _trial(tx: Snapshot, trial_id: UUID | None) -> Row | None:
    return None if trial_id is None else await trials.get_trial(tx, trial_id)


async def _siblings(tx: Snapshot, run: UUID | None, of: Row | None) -> Sequence[Row]:
    if run is None and of is not None:
        run = of["evaluation_run_id"]
    if run is not None:
        rows = await trials.attempts(tx, run)
    elif of is not None:
        rows = await trials.list_trials(tx, before=None, limit=MOST_CHOICES, training_run_id=of["training_run_id"])
        group = [
            row for row in rows if row["group_key"] == of["group_key"] and row["rollout_step"] == of["rollout_step"]
        ]
        rows = group if len(group) > 1 else rows
    else:
        rows = []
    return [row for row in rows if row["status"] not in ("created", "running")][:MOST_CHOICES]


async def _compared(tx: Snapshot, left: Row, right: Row) -> dict[str, Any]:
    one, other = await trajectory_of(tx, left), await trajectory_of(tx, right)
    return {"left": shown(left), "right": shown(right), "comparison": compare(one.steps, other.steps)}


def _rows(comparison: Comparison | None, start: int, only: str = "") -> dict[str, Any]:
    """One page of pairs."""
    total = len(comparison.pairs) if comparison else 0
    start = page_start(min(max(start, 1), max(total, 1)))
    end = start + PAGE_SIZE
    return {
        "pairs": comparison.pairs[start - 1 : end - 1] if comparison else (),
        "earlier": start - PAGE_SIZE if start > 1 and only != "later" else None,
        "later": end if end <= total and only != "earlier" else None,
        "only": only,
    }


def _crumbs(trial: Row | None) -> tuple[tuple[str, str | None], ...]:
    if trial is None or trial["evaluation_run_id"] is None:
        return ("Trials", "/trials"), ("compare", None)
    run = trial["evaluation_run_id"]
    return ("Runs", "/runs"), (f"run {str(run)[:8]}", f"/runs/{run}"), ("compare", None)
