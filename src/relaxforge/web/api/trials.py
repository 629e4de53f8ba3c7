"""Trials, with everything that was kept of them, and what they have in common."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from relaxforge.core.sessions import INFRASTRUCTURE
from relaxforge.store import artifacts, findings, trials
from relaxforge.store.database import Row, Transaction
from relaxforge.store.findings import Among
from relaxforge.web.api.shapes import Moment, Page, Shown
from relaxforge.web.caller import Reader, Snapshot
from relaxforge.web.errors import Problem
from relaxforge.web.pages.forest import read_session, turns_of
from relaxforge.web.pages.trajectory import read_trajectory
from relaxforge.web.parameters import (
    Cursor,
    EnvironmentId,
    Limit,
    RunId,
    Since,
    TrainingRunId,
    VersionId,
    before,
    page,
)

router = APIRouter(tags=["trials"])

TrialStatus = Literal["created", "running", "completed", "truncated", "failed", "dropped", "filtered"]
Numbers = dict[str, Any]


class TrialShown(Shown):
    """One attempt. ``stages`` are as the evaluator wrote them; a stage that is not there was not reported."""

    id: UUID
    rollout_id: UUID | None = None
    trial_number: int
    task_index: int
    attempt_no: int
    retry_index: int
    retry_of_id: UUID | None = None
    status: TrialStatus
    phase: str | None = None
    reward: float | None = None
    reward_status: str | None = None
    failure_category: str | None = Field(None, examples=["wrong_result"])
    failure_message: str | None = None
    stages: Numbers = Field({}, examples=[{"stage_inventory": 1, "stage_checkout": 0}])
    seed: int
    world_seed: int
    step_count: int | None = None
    turns: int | None = None
    duration_s: float | None = None
    started_at: Moment | None = None
    ended_at: Moment | None = None


class TrialListed(TrialShown):
    evaluation_run_id: UUID | None
    training_run_id: UUID | None
    environment_id: UUID | None
    environment_name: str | None
    environment_version_id: UUID | None
    version_number: int | None
    mode: str
    created_at: Moment


class TrialWhole(TrialListed):
    """``sanitised`` counts characters that had to be replaced; ``logTruncated`` says that the log was cut."""

    retried_by_id: UUID | None
    raw_reward: str | None
    metrics: Numbers
    agent_name: str
    agent_version: str
    model_name: str
    prompt_tokens: int | None
    completion_tokens: int | None
    durations: Numbers
    log_truncated: bool
    sanitised: Numbers
    trajectory_artifact_id: UUID | None
    session_artifact_id: UUID | None


class StepShown(Shown):
    step: int
    tool: str
    command: str
    observation: str


class StepsShown(Shown):
    """Some steps of a trajectory; ``next`` is where the following ones start."""

    total: int
    steps: list[StepShown]
    next: int | None


class TurnsShown(Shown):
    items: list[dict[str, Any]]


class GapCount(Shown):
    failure_category: str
    trials: int
    infrastructure: bool = Field(description="ours, not the agent's: such Trials have no reward")
    latest_at: Moment


class CapabilityGap(Shown):
    """Counts of ``failureCategory`` values that stand in rows; nothing is guessed for Trials that have none."""

    ended: int
    scored: int
    categorised: int
    items: list[GapCount]


class PartialReward(Shown):
    id: UUID
    trial_number: int
    rollout_id: UUID | None
    evaluation_run_id: UUID | None
    training_run_id: UUID | None
    environment_version_id: UUID | None
    environment_name: str | None
    version_number: int | None
    reward: float | None
    stages: Numbers
    failure_category: str | None
    created_at: Moment


def _among(
    environment_id: EnvironmentId = None,
    environment_version_id: VersionId = None,
    evaluation_run_id: RunId = None,
    training_run_id: TrainingRunId = None,
    since: Since = None,
) -> Among:
    return Among(environment_id, environment_version_id, evaluation_run_id, training_run_id, since)


Filters = Annotated[Among, Depends(_among)]


@router.get("/trials", summary="Trials, newest first")
async def list_trials(
    _: Reader,
    tx: Snapshot,
    among: Filters,
    cursor: Cursor = None,
    limit: Limit = 50,
    status: TrialStatus | None = None,
    failure_category: Annotated[str | None, Query(alias="failureCategory", max_length=200)] = None,
    mode: Literal["train", "eval"] | None = None,
) -> Page[TrialListed]:
    rows = await trials.list_trials(
        tx, before=before(cursor), limit=limit + 1, status=status, failure_category=failure_category, mode=mode,
        **asdict(among),
    )  # fmt: skip
    return Page[TrialListed].of(page(rows, limit))


@router.get("/trials/{trial_id}", summary="One Trial")
async def get_trial(trial_id: UUID, _: Reader, tx: Snapshot) -> TrialWhole:
    return TrialWhole.of(await trials.get_trial(tx, trial_id))


@router.get("/trials/{trial_id}/steps", summary="Steps of its trajectory")
async def steps(
    trial_id: UUID,
    _: Reader,
    tx: Snapshot,
    start: Annotated[int, Query(alias="from", ge=1, le=10_000_000)] = 1,
    limit: Limit = 50,
) -> StepsShown:
    body = await _body(tx, await trials.get_trial(tx, trial_id), "trajectory_artifact_id")
    trajectory = await asyncio.to_thread(read_trajectory, body)
    if trajectory.damaged is not None:
        raise Problem(409, "damaged", f"the trajectory of trial {trial_id} cannot be read: {trajectory.damaged}")
    found, end = trajectory.steps, start - 1 + limit
    shown = [StepShown.model_validate(step) for step in found[start - 1 : end]]
    return StepsShown(total=len(found), steps=shown, next=end + 1 if end < len(found) else None)


@router.get("/trials/{trial_id}/turns", summary="Its model requests, with tokens and times")
async def turns(trial_id: UUID, _: Reader, tx: Snapshot) -> TurnsShown:
    body = await _body(tx, await trials.get_trial(tx, trial_id), "session_artifact_id")
    try:
        line = await asyncio.to_thread(read_session, body)
    except ValueError as error:
        raise Problem(409, "damaged", f"the session of trial {trial_id} cannot be read: {error}") from None
    return TurnsShown(items=[asdict(turn) for turn in turns_of(line)])


@router.get("/capability-gap", summary="How often each failure category stands in a row")
async def capability_gap(_: Reader, tx: Snapshot, among: Filters) -> CapabilityGap:
    counts = await findings.outcome_counts(tx, among)
    rows = await findings.capability_gap(tx, among)
    items = [GapCount.of({**row, "infrastructure": row["failure_category"] in INFRASTRUCTURE}) for row in rows]
    return CapabilityGap(**counts, items=items)


@router.get("/partial-rewards", summary="Trials for which a worker wrote stages, newest first")
async def partial_rewards(
    _: Reader, tx: Snapshot, among: Filters, cursor: Cursor = None, limit: Limit = 50
) -> Page[PartialReward]:
    rows = await findings.partial_rewards(tx, among, before=before(cursor), limit=limit + 1)
    return Page[PartialReward].of(page(rows, limit))


async def _body(tx: Transaction, trial: Row, column: str) -> bytes:
    if trial[column] is None:
        raise Problem(404, "not_found", f"trial {trial['id']} has none: it has not ended, or its worker was lost")
    return (await artifacts.get(tx, trial[column])).body
