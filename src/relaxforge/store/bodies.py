"""Rollouts with the bodies of their artifacts, a few megabytes at a time."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from relaxforge.core.errors import StorageError
from relaxforge.core.evidence import StoredRollout, TrajectoryStatus
from relaxforge.store import artifacts
from relaxforge.store.database import Row, Transaction
from relaxforge.store.queries import query

Body = Literal["trajectory", "session"]
Group = list[StoredRollout]
"""One rollout, or the better and the worse one of a pair."""

_BATCH_ROWS = 100
_BATCH_BYTES = 4 * 1024 * 1024


async def read_groups(
    tx: Transaction, groups: Sequence[Sequence[UUID]], bodies: frozenset[Body]
) -> AsyncIterator[list[Group]]:
    """The rollouts with these ids, in their order, as many groups at a time as fit into memory easily.

    An artifact that is gone or has changed costs its own rollout its body, never the file.
    """
    step = max(1, _BATCH_ROWS // max(map(len, groups), default=1))
    for start in range(0, len(groups), step):
        some = groups[start : start + step]
        found = await tx.all("rollouts.by_ids", ids=[identity for group in some for identity in group])
        rows = {row["id"]: row for row in found}
        for portion in _portions([[rows[identity] for identity in group] for group in some], bodies):
            kept = await _bodies(tx, [row for group in portion for row in group], bodies)
            yield [[_rollout(row, kept, bodies) for row in group] for group in portion]


async def read_one(tx: Transaction, rollout_id: UUID, bodies: frozenset[Body]) -> StoredRollout | None:
    """One rollout, if it is there."""
    rows = await tx.all("rollouts.by_ids", ids=[rollout_id])
    return _rollout(rows[0], await _bodies(tx, rows, bodies), bodies) if rows else None


def _portions(groups: Sequence[list[Row]], bodies: frozenset[Body]) -> Iterator[list[list[Row]]]:
    """Neighbouring groups whose bodies together are small; a large one comes alone."""
    portion: list[list[Row]] = []
    size = 0
    for group in groups:
        more = sum(row[f"{body}_bytes"] for row in group for body in bodies)
        if portion and size + more > _BATCH_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(group)
        size += more
    if portion:
        yield portion


async def _bodies(tx: Transaction, rows: Sequence[Row], bodies: frozenset[Body]) -> dict[UUID, bytes]:
    """The bodies of these rows by the id of the artifact; what is gone or has changed is not among them."""
    ids = [row[f"{body}_artifact_id"] for row in rows for body in bodies if row[f"{body}_artifact_id"] is not None]
    if not ids or tx.scope is None:
        return {}
    given = {"organization_id": tx.scope.organization_id, "ids": ids}
    answer = await tx.connection.execute(query("rollouts.bodies"), given, binary=True)
    found: dict[UUID, bytes] = {}
    for row in await answer.fetchall():
        body = row["body"] if row["body"] is not None else await _elsewhere(tx, row["id"])
        if body is not None and hashlib.sha256(body).digest() == row["sha256"]:
            found[row["id"]] = body
    return found


async def _elsewhere(tx: Transaction, artifact_id: UUID) -> bytes | None:
    """The body of an artifact that lies outside the database."""
    try:
        return (await artifacts.get(tx, artifact_id)).body
    except StorageError:
        return None


def _rollout(row: Row, found: Mapping[UUID, bytes], bodies: frozenset[Body]) -> StoredRollout:
    values: dict[str, Any] = {name: row[name] for name in _PLAIN}
    values |= {name: None if row[name] is None else str(row[name]) for name in _IDS}
    trajectory = found.get(row["trajectory_artifact_id"])
    status: TrajectoryStatus = "none" if row["trajectory_artifact_id"] is None else "present"
    if status == "present" and "trajectory" in bodies and trajectory is None:
        status = "missing"
    values |= {"trajectory_status": status, "trajectory": trajectory, "session": found.get(row["session_artifact_id"])}
    return StoredRollout(**values)


_IDS = ("id", "trial_id", "environment_version_id", "evaluation_run_id", "training_run_id")
_PLAIN = (
    "seed",
    "reward",
    "created_at",
    "stages",
    "failure_category",
    "status",
    "world_seed",
    "task_index",
    "attempt_no",
    "agent_name",
    "agent_version",
    "model_name",
)
