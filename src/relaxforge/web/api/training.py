"""Training runs that send their evidence here, from their own files."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request

from relaxforge.export import training_bodies
from relaxforge.store import audit, training
from relaxforge.web.api.shapes import Moment, Page, Shown
from relaxforge.web.caller import Ingester, Reader, Snapshot, Store, Tx
from relaxforge.web.parameters import Cursor, Limit, before, page

router = APIRouter(tags=["training"])


class TrainingRunListed(Shown):
    id: UUID
    name: str
    source_key: str
    configuration: dict[str, Any]
    session_count: int
    last_step: int | None
    created_at: Moment
    last_seen_at: Moment


class OutcomeCount(Shown):
    mode: str
    status: str
    failure_category: str | None
    count: int


class TrainingRunShown(TrainingRunListed):
    outcomes: list[OutcomeCount]
    metric_names: list[str]


class PointShown(Shown):
    step: int
    name: str
    incarnation: int
    created_at: Moment
    metrics: dict[str, Any]


class SeriesShown(Shown):
    items: list[PointShown]


class Recorded(Shown):
    id: UUID


class Added(Shown):
    """How many were new; those that were here already are left as they are."""

    added: int


def _body(example: dict[str, Any]) -> dict[str, Any]:
    """The bodies are large and are read by their own reader, not by the framework."""
    schema = {"type": "object", "examples": [example]}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@router.get("/training-runs", summary="Training runs, newest first")
async def list_runs(_: Reader, tx: Snapshot, cursor: Cursor = None, limit: Limit = 50) -> Page[TrainingRunListed]:
    return Page[TrainingRunListed].of(page(await training.list_runs(tx, before=before(cursor), limit=limit + 1), limit))


@router.post(
    "/training-runs",
    summary="Announce a training run; the same sourceKey is the same run",
    openapi_extra=_body({"sourceKey": "20261201-093000-sum-checker", "name": "sum-checker", "configuration": {}}),
)
async def record_run(request: Request, caller: Ingester, tx: Tx) -> Recorded:
    card = training_bodies.read_run(await request.body())
    run_id = await training.record_run(tx, card)
    await audit.write(tx, "training_run_recorded", str(run_id), {"name": card.name}, caller.remote)
    return Recorded(id=run_id)


@router.get("/training-runs/{run_id}", summary="One training run")
async def get_run(run_id: UUID, _: Reader, tx: Snapshot) -> TrainingRunShown:
    row = await training.get_run(tx, run_id)
    return TrainingRunShown.of({**row, "metric_names": await training.metric_names(tx, run_id)})


@router.get("/training-runs/{run_id}/series", summary="Metrics by step")
async def series(
    run_id: UUID,
    _: Reader,
    tx: Snapshot,
    name: Annotated[list[str], Query(min_length=1, max_length=50, examples=[["rollout/reward"]])],
    kind: Literal["step", "eval"] = "step",
) -> SeriesShown:
    await training.get_run(tx, run_id)
    return SeriesShown(items=[PointShown.of(row) for row in await training.series(tx, run_id, name, kind=kind)])


@router.post(
    "/training-runs/{run_id}/sessions",
    summary="Add Sessions, failed ones included",
    openapi_extra=_body({"sessions": []}),
)
async def add_sessions(request: Request, run_id: UUID, caller: Ingester, database: Store) -> Added:
    sessions = await asyncio.to_thread(training_bodies.read_sessions, await request.body())
    async with database.scope(caller.scope) as tx:
        return Added(added=await training.add_sessions(tx, run_id, sessions))


@router.post(
    "/training-runs/{run_id}/steps",
    summary="Add the metrics of steps and evaluations",
    openapi_extra=_body({"steps": [{"kind": "step", "step": 0, "name": "", "incarnation": 0, "metrics": {}}]}),
)
async def add_steps(request: Request, run_id: UUID, _: Ingester, tx: Tx) -> Added:
    return Added(added=await training.add_steps(tx, run_id, training_bodies.read_steps(await request.body())))
