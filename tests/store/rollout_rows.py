"""Rollouts in a database, put there directly: what they came from does not matter to those who read them."""

from __future__ import annotations

import hashlib
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Rows:
    """Fills one organization. Times are minutes after ``BEGIN``."""

    def __init__(self, connection: psycopg.Connection[Any], organization: UUID) -> None:
        self._connection = connection
        self._organization = organization
        self._number = itertools.count(1)

    def _insert(self, table: str, **values: Any) -> UUID:
        values = {"organization_id": self._organization, **values}
        names, places = ", ".join(values), ", ".join(f"%({name})s" for name in values)
        statement = f"INSERT INTO {table} ({names}) VALUES ({places}) RETURNING id"
        return self._connection.execute(statement, values).fetchone()[0]

    def artifact(self, body: bytes, uri: str | None = None) -> UUID:
        kept = {"body": None if uri else body, "uri": uri}
        return self._insert(
            "artifacts", name="a.json", sha256=hashlib.sha256(body).digest(), size_bytes=len(body), **kept
        )

    def environment(self, name: str = "shop") -> UUID:
        return self._insert("environments", name=name)

    def version(self, environment: UUID, number: int = 1) -> UUID:
        bundle = self.artifact(b"bundle")
        digest = hashlib.sha256(f"{environment}{number}".encode()).digest()
        return self._insert(
            "environment_versions", environment_id=environment, number=number, digest=digest, manifest="{}",
            files="[]", bundle_artifact_id=bundle, created_at=BEGIN + timedelta(minutes=next(self._number)),
        )  # fmt: skip

    def run(self, version: UUID) -> UUID:
        (environment,) = self._connection.execute(
            "SELECT environment_id FROM environment_versions WHERE id = %s", (version,)
        ).fetchone()
        configuration = self._insert(
            "evaluator_configurations", environment_id=environment, name=f"c{next(self._number)}", attempt_count=5,
            agent_name="shopper", agent_version="1", model="{}",
        )  # fmt: skip
        return self._insert(
            "evaluation_runs", environment_version_id=version, evaluator_configuration_id=configuration,
            configuration="{}", world_seed=0,
        )  # fmt: skip

    def training_run(self) -> UUID:
        return self._insert("training_runs", name="r", source_key=f"r{next(self._number)}")

    def rollout(
        self,
        reward: float | None,
        *,
        run: UUID | None = None,
        version: UUID | None = None,
        training_run: UUID | None = None,
        minute: float = 0,
        task: int = 0,
        trajectory: UUID | None = None,
        session: UUID | None = None,
        **more: Any,
    ) -> str:
        number = next(self._number)
        of = {"evaluation_run_id": run, "training_run_id": training_run, "environment_version_id": version, "seed": 0}
        trial = self._insert(
            "evaluation_trials", **of, trial_number=number, task_index=task, attempt_no=number, reward=reward,
            reward_status=more.pop("reward_status", None), agent_name="shopper", agent_version="1",
            status="completed", trajectory_artifact_id=trajectory, session_artifact_id=session,
        )  # fmt: skip
        at = BEGIN + timedelta(minutes=minute)
        values = {**of, "reward": reward, "trajectory_artifact_id": trajectory, "created_at": at, **more}
        return str(self._insert("rollouts", trial_id=trial, **values))
