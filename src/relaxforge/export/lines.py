"""The default lines: one rollout with its steps, one preference pair, one rollout by itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from relaxforge.core.evidence import StoredRollout, TrajectoryStatus, TrajectoryStep
from relaxforge.export.trajectory import steps_in

PRIVATE = "PRIVATE"
SCHEMA_VERSION = 1


def rollout_line(rollout: StoredRollout) -> bytes:
    """One line: the same keys in the same order on each; texts that are not there are ``""``."""
    steps, status = read_steps(rollout)
    line = {
        "schemaVersion": SCHEMA_VERSION,
        "privacyClass": PRIVATE,
        "format": "atif-shaped" if steps else "reward-only",
        "rolloutId": rollout.id,
        "seed": rollout.seed,
        "reward": rollout.reward,
        "evaluationRunId": rollout.evaluation_run_id or "",
        "trajectory": steps,
        "environmentVersionId": rollout.environment_version_id or "",
        "trainingRunId": rollout.training_run_id or "",
        "trialId": rollout.trial_id,
        # As text: names of stages differ from row to row, and readers infer one schema for the whole file.
        "stages": msgspec.json.encode(rollout.stages).decode(),
        "failureCategory": rollout.failure_category or "",
        "trajectoryStatus": status,
        "createdAt": timestamp(rollout.created_at),
    }
    return encode_line(line)


def preference_line(better: StoredRollout, worse: StoredRollout) -> bytes:
    """The highest against the lowest rollout of one environment version."""
    line = {
        "schemaVersion": SCHEMA_VERSION,
        "privacyClass": PRIVATE,
        "environmentVersionId": better.environment_version_id,
        "preferredRolloutId": better.id,
        "rejectedRolloutId": worse.id,
        "preferredReward": better.reward,
        "rejectedReward": worse.reward,
    }
    return encode_line(line)


def single_rollout(rollout: StoredRollout) -> dict[str, Any]:
    """The answer to a request for one rollout; stages exactly as the evaluator wrote them."""
    return {
        "id": rollout.id,
        "seed": rollout.seed,
        "reward": rollout.reward,
        "environmentVersionId": rollout.environment_version_id,
        "evaluationRunId": rollout.evaluation_run_id,
        "stages": rollout.stages,
    }


def read_steps(rollout: StoredRollout) -> tuple[Sequence[TrajectoryStep], TrajectoryStatus]:
    """The steps of a rollout; one whose artifact is damaged costs only itself, and says so."""
    if rollout.trajectory is None:
        return (), rollout.trajectory_status
    try:
        return steps_in(rollout.trajectory), rollout.trajectory_status
    except ValueError:
        return (), "missing"


def encode_line(line: dict[str, Any]) -> bytes:
    """Compact JSON as UTF-8 with its line end. Numbers are finite: the store holds no others."""
    return msgspec.json.encode(line) + b"\n"


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
