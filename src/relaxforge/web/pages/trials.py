"""Trials: the list, and one Trial with everything that was kept of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, get_args
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from relaxforge.core.sessions import FailureCategory, SessionStatus
from relaxforge.store import artifacts, environments, trials
from relaxforge.store.database import Row
from relaxforge.web.caller import Reader, Snapshot
from relaxforge.web.errors import not_found
from relaxforge.web.pages.agent_text import whole
from relaxforge.web.pages.charts import phases, segments
from relaxforge.web.pages.choices import environment_choices
from relaxforge.web.pages.evidence import session_of, trajectory_of
from relaxforge.web.pages.filters import EvidenceFilter, From
from relaxforge.web.pages.forest import tree_of, turns_of
from relaxforge.web.pages.html import KEYS, fragment, page
from relaxforge.web.pages.outcome import label, outcome, shown
from relaxforge.web.pages.trajectory import find, page_start, step_page
from relaxforge.web.parameters import before, cursor_after

router = APIRouter(include_in_schema=False)

PAGE_ROWS = 50
MOST_TURNS = 1_000

Tab = Literal["trajectory", "log", "turns", "forest", "stages", "artifacts"]
TABS = tuple((name, name.capitalize()) for name in get_args(Tab))
TRIAL_KEYS = (
    *KEYS,
    ("e", "expand all"),
    ("/", "search the steps"),
    ("[", "previous Trial"),
    ("]", "next Trial"),
    ("c", "compare"),
)
STATUSES = ("created", "running", *(str(status) for status in SessionStatus))


@router.get("/trials")
async def list_trials(
    request: Request,
    _: Reader,
    tx: Snapshot,
    chosen: EvidenceFilter,
    status: str = "",
    category: str = "",
    cursor: str | None = None,
) -> Response:
    among = chosen.among
    found = await trials.list_trials(
        tx,
        before=before(cursor),
        limit=PAGE_ROWS + 1,
        evaluation_run_id=among.evaluation_run_id,
        training_run_id=among.training_run_id,
        environment_id=among.environment_id,
        environment_version_id=among.environment_version_id,
        status=status or None,
        failure_category=category or None,
        since=among.since,
    )
    rows = found[:PAGE_ROWS]
    here = {"status": status, "category": category}
    categories = [str(each) for each in FailureCategory]
    return page(
        request,
        "trials.html",
        title="Trials",
        here="trials",
        trials=[shown(row) for row in rows],
        places_shown=not (chosen.run or chosen.training_run),
        filter=chosen,
        status=status,
        category=category,
        filtered=chosen.given or status or category,
        environment_choices=await environment_choices(tx),
        status_choices=[(each, each) for each in STATUSES],
        category_choices=[(each, each) for each in dict.fromkeys([*categories, *filter(None, [category])])],
        newest=chosen.address("/trials", **here) if cursor else None,
        next=chosen.address("/trials", **here, cursor=cursor_after(rows[-1])) if len(found) > PAGE_ROWS else None,
    )


@router.get("/trials/{trial_id}")
async def show_trial(
    request: Request,
    trial_id: UUID,
    _: Reader,
    tx: Snapshot,
    tab: Tab = "trajectory",
    q: str = "",
    start: From = 1,
) -> Response:
    trial = await trials.get_trial(tx, trial_id)
    place = await trials.neighbours(tx, trial)
    return page(
        request,
        "trial.html",
        title=label(trial),
        here="trials",
        crumbs=_crumbs(trial),
        keys=(
            *KEYS,
            ("e", "expand all"),
            ("/", "search the steps"),
            ("[", "previous Trial"),
            ("]", "next Trial"),
            ("c", "compare"),
        ),
        trial=trial,
        label=label(trial),
        outcome=outcome(trial),
        earlier=place["earlier_id"],
        following=place["later_id"],
        phases=segments(phases(trial["durations"])),
        tab=tab,
        tabs=TABS,
        **await _TAB[tab](tx, trial, q, start),
    )


@router.get("/trials/{trial_id}/steps")
async def steps(
    request: Request,
    trial_id: UUID,
    _: Reader,
    tx: Snapshot,
    start: From = 1,
    only: Literal["", "earlier", "later"] = "",
) -> Response:
    """A page of steps; ``only`` leaves out the way in the other direction, which the page that asks has already."""
    trial = await trials.get_trial(tx, trial_id)
    return fragment(request, "steps.html", trial=trial, **_step_page(await trajectory_of(tx, trial), start, only))


@router.get("/trials/{trial_id}/steps/{number}/{part}")
async def whole_text(
    request: Request, trial_id: UUID, number: int, part: Literal["command", "observation"], _: Reader, tx: Snapshot
) -> Response:
    """All of one command or observation."""
    trial = await trials.get_trial(tx, trial_id)
    found = (await trajectory_of(tx, trial)).steps
    if not 1 <= number <= len(found):
        raise not_found("step", number)
    text = getattr(found[number - 1], part)
    return fragment(request, "folded_whole.html", trial=trial, number=number, part=part, folded=whole(text), whole=True)


def _step_page(trajectory: Any, start: int, only: str = "") -> dict[str, Any]:
    start = page_start(min(max(start, 1), max(len(trajectory.steps), 1)))
    return {"trajectory": trajectory, "page": step_page(trajectory.steps, start), "start": start, "only": only}


async def _trajectory(tx: Snapshot, trial: Row, q: str, start: int) -> dict[str, Any]:
    trajectory = await trajectory_of(tx, trial)
    hits, count = find(trajectory.steps, q)
    return {"q": q, "hits": hits, "hit_count": count, **_step_page(trajectory, start)}


async def _log(tx: Snapshot, trial: Row, _q: str, _start: int) -> dict[str, Any]:
    return {"log": whole((await trajectory_of(tx, trial)).log)}


async def _turns(tx: Snapshot, trial: Row, _q: str, _start: int) -> dict[str, Any]:
    try:
        rows = turns_of(await session_of(tx, trial))
    except ValueError as error:
        return {"problem": str(error)}
    problem = None if rows else "The agent sent no model request."
    return {"problem": problem, "turns": rows[:MOST_TURNS], "left_out": max(0, len(rows) - MOST_TURNS)}


async def _forest(tx: Snapshot, trial: Row, _q: str, _start: int) -> dict[str, Any]:
    try:
        nodes, total = tree_of(await session_of(tx, trial))
    except ValueError as error:
        return {"problem": str(error)}
    return {"problem": None if nodes else "No conversation was committed.", "nodes": nodes, "total": total}


async def _stages(tx: Snapshot, trial: Row, _q: str, _start: int) -> dict[str, Any]:
    declared: list[str] = []
    if trial["environment_version_id"] is not None:
        version = await environments.get_version(tx, trial["environment_version_id"])
        declared = list((version["manifest"].get("evaluator") or {}).get("stages", ()))
    written = trial["stages"]
    order = [name for name in declared if name in written] + [name for name in written if name not in declared]
    return {
        "written": [(name, written[name]) for name in order],
        "missing": [name for name in declared if name not in written],
    }


async def _artifacts(tx: Snapshot, trial: Row, _q: str, _start: int) -> dict[str, Any]:
    kept = (
        (trial["trajectory_artifact_id"], "log and trajectory"),
        (trial["session_artifact_id"], "the session with its exact tokens: a dump line"),
    )
    rows = [(await artifacts.head(tx, key), meaning) for key, meaning in kept if key is not None]
    return {"artifacts": rows, "rollout": trial["rollout_id"]}


_TAB: dict[Tab, Callable[[Any, Row, str, int], Awaitable[dict[str, Any]]]] = {
    "trajectory": _trajectory,
    "log": _log,
    "turns": _turns,
    "forest": _forest,
    "stages": _stages,
    "artifacts": _artifacts,
}


def _crumbs(trial: Row) -> tuple[tuple[str, str | None], ...]:
    if trial["training_run_id"] is not None:
        run = trial["training_run_id"]
        return ("Training runs", "/training-runs"), ("run", f"/training-runs/{run}"), (label(trial), None)
    run = trial["evaluation_run_id"]
    return (
        ("Environments", "/environments"),
        (trial["environment_name"], f"/environments/{trial['environment_id']}"),
        (f"run {str(run)[:8]}", f"/runs/{run}"),
        (label(trial), None),
    )
