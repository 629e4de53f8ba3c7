"""Evaluator configurations, and the evaluation runs that they start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from relaxforge.core.errors import ConfigError
from relaxforge.credit.summary import summarise
from relaxforge.engine.choice import read_budget, read_model
from relaxforge.store import audit, evaluations, trials
from relaxforge.store.database import Row
from relaxforge.store.errors import InvalidError
from relaxforge.web.api.shapes import Asked, Moment, Page, Shown
from relaxforge.web.api.trials import TrialShown
from relaxforge.web.caller import Reader, Runner, Snapshot, Store, Tx
from relaxforge.web.live import Event, LiveResponse, Look
from relaxforge.web.parameters import ConfigurationId, Cursor, EnvironmentId, Limit, VersionId, before, page

router = APIRouter(tags=["evaluation"])

RunStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]
IdempotencyKey = Annotated[
    str | None,
    Header(max_length=200, description="The same key with the same request starts one run, however often it is sent"),
]
ENDED = ("succeeded", "failed", "cancelled")


class ConfigurationAsked(Asked):
    environment_id: UUID
    name: str = Field(min_length=1, max_length=200, examples=["five attempts"])
    attempt_count: int = Field(ge=1, le=8, description="independent attempts of every task in one job")
    model: dict[str, Any] = Field(examples=[{"engine": "scripted", "replies": "replies.jsonl"}])
    agent_name: str = Field("", max_length=200)
    agent_version: str = Field("", max_length=200)
    seed: int = 0
    world_seed: int = 0
    concurrency: int = Field(2, ge=1, le=64, description="attempts that run at the same time")
    budget: dict[str, Any] = Field({}, description="limits of one attempt")
    pass_threshold: float = Field(1.0, gt=0, le=1, description="least reward that counts as passed")


class ConfigurationShown(Shown):
    id: UUID
    environment_id: UUID
    name: str
    attempt_count: int
    model: dict[str, Any]
    agent_name: str
    agent_version: str
    seed: int
    world_seed: int
    concurrency: int
    budget: dict[str, Any]
    pass_threshold: float
    created_at: Moment


class RunAsked(Asked):
    environment_version_id: UUID
    evaluator_configuration_id: UUID


class ResetAsked(Asked):
    mode: Literal["new_workspace", "new_world"] = Field(
        description="new_workspace: a fresh workspace, the same world; new_world: the world of the next seed"
    )


class CancelAsked(Asked):
    mode: Literal["finish_running", "at_once"]


class Started(Shown):
    evaluation_run_id: UUID
    job_id: UUID


class RunShown(Shown):
    """``configuration`` is what the evaluator configuration said when the run was started; ``summary`` has pass@k."""

    id: UUID
    environment_id: UUID
    environment_name: str
    environment_version_id: UUID
    version_number: int
    evaluator_configuration_id: UUID
    configuration: dict[str, Any]
    reset_of_id: UUID | None
    reset_mode: str | None
    world_seed: int
    status: RunStatus
    error: str | None
    summary: dict[str, Any] | None
    job_id: UUID | None
    job_state: str | None
    cancel_mode: str | None
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None


@router.get("/evaluator-configurations", summary="Evaluator configurations, newest first")
async def list_configurations(
    _: Reader, tx: Snapshot, cursor: Cursor = None, limit: Limit = 50, environment_id: EnvironmentId = None
) -> Page[ConfigurationShown]:
    rows = await evaluations.list_configurations(
        tx, before=before(cursor), limit=limit + 1, environment_id=environment_id
    )
    return Page[ConfigurationShown].of(page(rows, limit))


@router.post("/evaluator-configurations", status_code=201, summary="Say how an environment is to be evaluated")
async def create_configuration(caller: Runner, tx: Tx, asked: ConfigurationAsked) -> ConfigurationShown:
    _check("model", read_model, asked.model)
    _check("budget", read_budget, asked.budget)
    row = await evaluations.create_configuration(tx, **asked.model_dump())
    await audit.write(tx, "configuration_created", str(row["id"]), {"name": asked.name}, caller.remote)
    return ConfigurationShown.of(row)


@router.get("/evaluator-configurations/{configuration_id}", summary="One evaluator configuration")
async def get_configuration(configuration_id: UUID, _: Reader, tx: Snapshot) -> ConfigurationShown:
    return ConfigurationShown.of(await evaluations.get_configuration(tx, configuration_id))


@router.get("/evaluation-runs", summary="Evaluation runs, newest first")
async def list_runs(
    _: Reader,
    tx: Snapshot,
    cursor: Cursor = None,
    limit: Limit = 50,
    environment_id: EnvironmentId = None,
    environment_version_id: VersionId = None,
    evaluator_configuration_id: ConfigurationId = None,
    status: RunStatus | None = None,
) -> Page[RunShown]:
    rows = await evaluations.list_runs(
        tx, before=before(cursor), limit=limit + 1, environment_id=environment_id,
        environment_version_id=environment_version_id, evaluator_configuration_id=evaluator_configuration_id,
        status=status,
    )  # fmt: skip
    return Page[RunShown].of(page(rows, limit))


@router.post("/evaluation-runs", status_code=201, summary="Start an evaluation run")
async def start_run(
    response: Response, caller: Runner, tx: Tx, asked: RunAsked, idempotency_key: IdempotencyKey = None
) -> Started:
    started = await evaluations.start_run(
        tx, **asked.model_dump(), idempotency_key=idempotency_key, created_by=caller.user_id
    )
    if started.created:
        await audit.write(tx, "run_started", str(started.evaluation_run_id), {}, caller.remote)
    else:
        response.status_code = 200
    return Started.model_validate(started)


@router.get("/evaluation-runs/{run_id}", summary="One evaluation run")
async def get_run(run_id: UUID, _: Reader, tx: Snapshot) -> RunShown:
    run = await evaluations.get_run(tx, run_id)
    return RunShown.of(with_summary(run, await trials.attempts(tx, run_id)))


@router.post("/evaluation-runs/{run_id}/reset", status_code=202, summary="Run again on the same environment version")
async def reset_run(
    run_id: UUID, caller: Runner, tx: Tx, asked: ResetAsked, idempotency_key: IdempotencyKey = None
) -> Started:
    started = await evaluations.reset_run(
        tx, run_id, asked.mode, idempotency_key=idempotency_key, created_by=caller.user_id
    )
    if started.created:
        detail = {"mode": asked.mode, "evaluationRunId": str(started.evaluation_run_id)}
        await audit.write(tx, "run_reset", str(run_id), detail, caller.remote)
    return Started.model_validate(started)


@router.post("/evaluation-runs/{run_id}/cancel", status_code=202, summary="Cancel an evaluation run")
async def cancel_run(run_id: UUID, caller: Runner, tx: Tx, asked: CancelAsked) -> RunShown:
    row = await evaluations.cancel_run(tx, run_id, asked.mode, summarise)
    await audit.write(tx, "run_cancelled", str(run_id), {"mode": asked.mode}, caller.remote)
    return RunShown.of(row)


@router.get(
    "/evaluation-runs/{run_id}/events",
    summary="Server-sent events of a run: run and trial as they change, then end",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def run_events(request: Request, run_id: UUID, caller: Reader, database: Store) -> LiveResponse:
    async def look() -> Look:
        async with database.snapshot(caller.scope) as tx:
            run, attempts = await evaluations.get_run(tx, run_id), await trials.attempts(tx, run_id)
        run = with_summary(run, attempts)
        events = [Event("run", "run", RunShown.of(run).model_dump_json(by_alias=True))]
        events += [
            Event("trial", str(row["id"]), TrialShown.of(row).model_dump_json(by_alias=True)) for row in attempts
        ]
        return Look(tuple(events), ended=run["status"] in ENDED)

    await look()  # A run that is not there is a 404, not an empty stream.
    return LiveResponse(request, look)


def _check(field: str, read: Callable[[dict[str, Any]], object], value: dict[str, Any]) -> None:
    """Errors: ``InvalidError`` when a worker could do nothing with ``value``."""
    try:
        read(value)
    except ConfigError as error:
        raise InvalidError(field, str(error).partition(": ")[2]) from None


def with_summary(run: Row, attempts: Sequence[Row]) -> Row:
    """A run that has not ended yet has the summary of what is there so far."""
    if run["summary"] is not None or run["status"] in ENDED:
        return run
    configuration = run["configuration"]
    return {**run, "summary": summarise(attempts, configuration["attempt_count"], configuration["pass_threshold"])}
