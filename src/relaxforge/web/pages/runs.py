"""Evaluation runs: the list, and one run as it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from secrets import token_urlsafe
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from relaxforge.credit.summary import summarise
from relaxforge.store import evaluations, trials
from relaxforge.store.database import Row
from relaxforge.web.api import evaluations as api
from relaxforge.web.caller import Reader, Runner, Snapshot, Tx
from relaxforge.web.pages.choices import environment_choices
from relaxforge.web.pages.filters import identity
from relaxforge.web.pages.html import KEYS, address, fragment, page
from relaxforge.web.pages.outcome import EXPLANATIONS, failures_first, shown
from relaxforge.web.parameters import before, cursor_after

router = APIRouter(include_in_schema=False)

PAGE_ROWS = 50
MOST_TASKS, MOST_LISTED, MOST_WHOLE = 100, 100, 200
"""What the page of one run shows at most; the list of Trials has the rest."""

STATUSES = ("queued", "running", "succeeded", "failed", "cancelled")


@router.get("/runs")
async def list_runs(
    request: Request, _: Reader, tx: Snapshot, environment: str = "", status: str = "", cursor: str | None = None
) -> Response:
    found = await evaluations.list_runs(
        tx,
        before=before(cursor),
        limit=PAGE_ROWS + 1,
        environment_id=identity("environment", environment),
        status=status or None,
    )
    rows = found[:PAGE_ROWS]
    here = {"environment": environment, "status": status}
    return page(
        request,
        "runs.html",
        title="Evaluation runs",
        here="runs",
        runs=rows,
        environment=None,
        environment_id=environment,
        status=status,
        environment_choices=await environment_choices(tx),
        status_choices=[(each, each) for each in STATUSES],
        newest=address("/runs", **here) if cursor else None,
        next=address("/runs", **here, cursor=cursor_after(rows[-1])) if len(found) > PAGE_ROWS else None,
    )


@router.get("/runs/{run_id}")
async def show_run(request: Request, run_id: UUID, _: Reader, tx: Snapshot, done: str = "") -> Response:
    run = await evaluations.get_run(tx, run_id)
    return page(
        request,
        "run.html",
        title=f"Run {str(run_id)[:8]}",
        here="runs",
        crumbs=(
            ("Environments", "/environments"),
            (run["environment_name"], f"/environments/{run['environment_id']}"),
            (f"run {str(run_id)[:8]}", None),
        ),
        keys=(*KEYS, ("c", "compare best with worst")),
        notice="The run is being cancelled." if done == "cancelled" and run["status"] not in api.ENDED else None,
        words=tuple(EXPLANATIONS),
        once=token_urlsafe(16),
        **await _live(tx, run),
    )


@router.get("/runs/{run_id}/live")
async def live_part(request: Request, run_id: UUID, _: Reader, tx: Snapshot) -> Response:
    return fragment(request, "run_live.html", **await _live(tx, await evaluations.get_run(tx, run_id)))


@router.post("/runs/{run_id}/reset")
async def reset(
    run_id: UUID,
    caller: Runner,
    tx: Tx,
    mode: Annotated[Literal["new_workspace", "new_world"], Form()],
    key: Annotated[str, Form(max_length=200)],
) -> Response:
    started = await api.reset_run(run_id, caller, tx, api.ResetAsked(mode=mode), key)
    return RedirectResponse(f"/runs/{started.evaluation_run_id}", 303)


@router.post("/runs/{run_id}/cancel")
async def cancel(
    run_id: UUID, caller: Runner, tx: Tx, mode: Annotated[Literal["finish_running", "at_once"], Form()]
) -> Response:
    await api.cancel_run(run_id, caller, tx, api.CancelAsked(mode=mode))
    return RedirectResponse(f"/runs/{run_id}?done=cancelled", 303)


async def _live(tx: Snapshot, run: Row) -> dict[str, Any]:
    """What changes while a run goes on."""
    attempts = await trials.attempts(tx, run["id"])
    configuration = run["configuration"]
    threshold = configuration["pass_threshold"]
    each = [shown(attempt, threshold) for attempt in attempts]
    tasks = _tasks(each)
    newest = await trials.list_trials(tx, before=None, limit=MOST_WHOLE, evaluation_run_id=run["id"])
    whole = {row["id"]: row for row in newest}
    return {
        "run": run,
        "live": run["status"] not in api.ENDED,
        "attempts": attempts,
        "ended": sum(attempt["status"] not in ("created", "running") for attempt in attempts),
        "tasks": tasks[:MOST_TASKS],
        "more_tasks": max(0, len(tasks) - MOST_TASKS),
        "repeated": len({attempt["retry_of_id"] for attempt in attempts} - {None}),
        "places_shown": False,
        "listed": [shown(whole.get(one.row["id"], one.row), threshold) for one in failures_first(each)[:MOST_LISTED]],
        "summary": run["summary"]
        or (summarise(attempts, configuration["attempt_count"], threshold) if attempts else None),
    }


def _tasks(attempts: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"index": index, "attempts": list(group)}
        for index, group in groupby(attempts, key=lambda each: each.row["task_index"])
    ]
