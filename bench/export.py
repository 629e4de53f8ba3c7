"""Claim: 1,000 rollouts of 50 steps are on their way within 1 s and there within 3 s, in flat memory.

Also while 50 other organizations have 1,000,000 rollouts in the same table. A real PostgreSQL, a real server in a
process of its own, HTTP in between. Loading takes some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psutil
import psycopg

from gateway_parts import RESULTS, save
from relaxforge.core.evidence import TrajectoryStep
from relaxforge.export.trajectory import trajectory_file
from relaxforge.store import identity
from relaxforge.store.admin import create_first_owner, install
from relaxforge.store.database import Database, Scope
from relaxforge.store.embedded import EmbeddedPostgres
from relaxforge.store.urls import with_parts
from relaxforge.store.vault import open_vault
from relaxforge.web.app import create_app
from relaxforge.web.config import WebConfig
from relaxforge.web.server import Server, bind

FIRST_BYTE_S, WHOLE_FILE_S, GROWTH_MIB = 1.0, 3.0, 64.0
STEPS, CHARACTERS = 50, 400
"""Steps of a rollout, and characters of each observation."""

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TRIAL_COLUMNS = (
    "organization_id, id, evaluation_run_id, environment_version_id, trial_number, attempt_no, seed, reward, "
    "reward_status, status, agent_name, agent_version, created_at, trajectory_artifact_id"
)
ROLLOUT_COLUMNS = (
    "organization_id, id, trial_id, environment_version_id, evaluation_run_id, seed, reward, stages, "
    "trajectory_artifact_id, step_count, created_at"
)


class Loader:
    """Puts rows into the tables directly, without checking keys that are right by construction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        connection.execute("SET session_replication_role = replica")

    def run_of(self, organization: UUID) -> tuple[UUID, UUID]:
        """A new evaluation run and the environment version it is about."""
        environment, version, run, bundle, configuration = (uuid4() for _ in range(5))
        given = {"o": organization, "e": environment, "v": version, "r": run, "b": bundle, "c": configuration}
        for statement in (
            "INSERT INTO environments (organization_id, id, name) VALUES (%(o)s, %(e)s, %(e)s::text)",
            "INSERT INTO artifacts (organization_id, id, name, sha256, size_bytes, body) "
            "VALUES (%(o)s, %(b)s, 'bundle', sha256('x'), 1, 'x')",
            "INSERT INTO environment_versions (organization_id, id, environment_id, number, digest, manifest, files, "
            "bundle_artifact_id) VALUES (%(o)s, %(v)s, %(e)s, 1, sha256('x'), '{}', '[]', %(b)s)",
            "INSERT INTO evaluator_configurations (organization_id, id, environment_id, name, attempt_count, "
            "agent_name, agent_version, model) VALUES (%(o)s, %(c)s, %(e)s, 'c', 8, 'agent', '1', '{}')",
            "INSERT INTO evaluation_runs (organization_id, id, environment_version_id, evaluator_configuration_id, "
            "configuration, world_seed) VALUES (%(o)s, %(r)s, %(v)s, %(c)s, '{}', 0)",
        ):
            self.connection.execute(statement, given)
        return version, run

    def rollouts(self, organization: UUID, version: UUID, run: UUID, count: int, artifacts: list[UUID] | None) -> None:
        ids = [(uuid4(), uuid4()) for _ in range(count)]
        with self.connection.cursor().copy(f"COPY evaluation_trials ({TRIAL_COLUMNS}) FROM STDIN") as copy:
            for number, (trial, _) in enumerate(ids, start=1):
                body = artifacts[number - 1] if artifacts else None
                copy.write_row((organization, trial, run, version, number, number, number, _reward(number), "scored",
                                "completed", "agent", "1", _at(number), body))  # fmt: skip
        with self.connection.cursor().copy(f"COPY rollouts ({ROLLOUT_COLUMNS}) FROM STDIN") as copy:
            for number, (trial, rollout) in enumerate(ids, start=1):
                body = artifacts[number - 1] if artifacts else None
                copy.write_row((organization, rollout, trial, version, run, number, _reward(number),
                                '{"stage_inventory": 1}', body, STEPS, _at(number)))  # fmt: skip

    def trajectories(self, organization: UUID, count: int) -> list[UUID]:
        ids = [uuid4() for _ in range(count)]
        columns = "organization_id, id, name, media_type, sha256, size_bytes, body"
        with self.connection.cursor().copy(f"COPY artifacts ({columns}) FROM STDIN") as copy:
            for number, identity_ in enumerate(ids, start=1):
                body = _trajectory(number)
                copy.write_row((organization, identity_, f"trial-{number}-trajectory.json", "application/json",
                                hashlib.sha256(body).digest(), len(body), body))  # fmt: skip
        return ids


def _reward(number: int) -> float:
    return (number % 21) / 20


def _at(number: int) -> datetime:
    return BEGIN + timedelta(seconds=number)


def _trajectory(number: int) -> bytes:
    steps = [
        TrajectoryStep(step, "bash", f"cat file-{number}-{step}.txt", f"{number}-{step} é " + "x" * CHARACTERS)
        for step in range(1, STEPS + 1)
    ]
    return trajectory_file("log", steps)


async def serve(app_url: str, folder: Path) -> None:
    config = WebConfig(port=0)
    async with Database(app_url) as database:
        server = Server(create_app(config, database, open_vault(folder / "key")), config, bind(config))
        print(server.origin, flush=True)
        await server.run_until_stopped()


@contextmanager
def serving(app_url: str, folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The workspace in a process of its own: where it is, and the process."""
    command = [sys.executable, __file__, "--serve", app_url, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            origin = process.stdout.readline().strip()
            while process.poll() is None:
                try:
                    httpx.get(f"{origin}/health", trust_env=False)
                    break
                except httpx.TransportError:
                    continue
            yield origin, psutil.Process(process.pid)
        finally:
            process.kill()


def measure(client: httpx.Client, kind: str, server: psutil.Process) -> dict[str, float]:
    before = server.memory_info().rss
    most = before
    started = time.perf_counter()
    first = 0.0
    size = 0
    with client.stream("GET", "/api/v1/rollouts", params={"kind": kind}) as answer:
        answer.raise_for_status()
        for chunk in answer.iter_bytes():
            first = first or time.perf_counter() - started
            size += len(chunk)
            most = max(most, server.memory_info().rss)
    whole = time.perf_counter() - started
    return {"first_byte_s": first, "whole_s": whole, "mib": size / 2**20, "growth_mib": (most - before) / 2**20}


async def make_token(app_url: str, organization: UUID, user: UUID) -> str:
    async with Database(app_url) as database, database.scope(Scope(organization, user)) as tx:
        expires_at = datetime.now(UTC) + timedelta(hours=1)
        _, token = await identity.create_token(
            tx, user_id=user, name="bench", scopes=["read", "export"], expires_at=expires_at
        )
        return token


def rounds(client: httpx.Client, server: psutil.Process, times: int) -> list[dict[str, Any]]:
    rows = []
    for kind in ("all", "failed", "recovery", "successful", "preference"):
        runs = [measure(client, kind, server) for _ in range(times)]
        median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        rows.append({"kind": kind, **median, "most_growth_mib": max(run["growth_mib"] for run in runs)})
        started = time.perf_counter()
        client.get("/api/v1/rollouts/counts").raise_for_status()
        rows[-1]["counts_s"] = time.perf_counter() - started
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}\n{'kind':>12} {'first byte s':>12} {'whole s':>8} {'MiB':>7} {'growth MiB':>10} {'counts s':>9}")
    for row in rows:
        print(f"{row['kind']:>12} {row['first_byte_s']:12.3f} {row['whole_s']:8.3f} {row['mib']:7.1f} "
              f"{row['most_growth_mib']:10.1f} {row['counts_s']:9.3f}")  # fmt: skip


def bench(arguments: argparse.Namespace, folder: Path) -> bool:
    with EmbeddedPostgres(folder / "postgres") as server:
        passwords = {"app": secrets.token_hex(), "worker": secrets.token_hex()}
        install(server.admin_url, app_password=passwords["app"], worker_password=passwords["worker"])
        app_url = with_parts(server.admin_url, user="relaxforge_app", password=passwords["app"])
        organization, user = create_first_owner(
            server.admin_url, organization="Measured", email="owner@measured.example", password_hash="none",
            must_change_password=False,
        )  # fmt: skip
        token = asyncio.run(make_token(app_url, organization, user))
        admin = with_parts(server.admin_url, options="-csearch_path=relaxforge")
        with psycopg.connect(admin, autocommit=True) as connection:
            loader = Loader(connection)
            version, run = loader.run_of(organization)
            bodies = loader.trajectories(organization, arguments.rollouts)
            loader.rollouts(organization, version, run, arguments.rollouts, bodies)
            connection.execute("ANALYZE")
            with serving(app_url, folder) as (origin, process), httpx.Client(
                base_url=origin, headers={"Authorization": f"Bearer {token}", "Accept-Encoding": arguments.encoding},
                timeout=60, trust_env=False,
            ) as client:  # fmt: skip
                measure(client, "all", process)
                alone = rounds(client, process, arguments.times)
                show("alone", alone)
                started = time.perf_counter()
                for number in range(arguments.organizations):
                    other = connection.execute(
                        "INSERT INTO organizations (name) VALUES (%s) RETURNING id", (f"Other {number}",)
                    ).fetchone()
                    assert other is not None
                    loader.rollouts(other[0], *loader.run_of(other[0]), arguments.rows, None)
                connection.execute("VACUUM ANALYZE")
                loaded = time.perf_counter() - started
                crowded = rounds(client, process, arguments.times)
                show(
                    f"beside {arguments.organizations} x {arguments.rows} rollouts (loaded in {loaded:.0f} s)", crowded
                )
    figures = {
        "rollouts": arguments.rollouts, "steps": STEPS, "others": arguments.organizations * arguments.rows,
        "encoding": arguments.encoding, "alone": alone, "crowded": crowded,
        "targets": {"first_byte_s": FIRST_BYTE_S, "whole_s": WHOLE_FILE_S, "growth_mib": GROWTH_MIB},
    }  # fmt: skip
    print(f"\nwritten to {save('export', figures, arguments.results)}")
    return all(
        row["first_byte_s"] < FIRST_BYTE_S and row["whole_s"] < WHOLE_FILE_S and row["most_growth_mib"] < GROWTH_MIB
        for row in alone + crowded
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=1_000)
    parser.add_argument("--organizations", type=int, default=50)
    parser.add_argument("--rows", type=int, default=20_000, help="rollouts of each other organization")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--encoding", default="identity", help="identity or gzip")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--serve", nargs=2, metavar=("URL", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.serve[0], Path(arguments.serve[1])))
        return 0
    with tempfile.TemporaryDirectory(prefix="relaxforge-bench-") as folder:
        Path(folder).chmod(0o711)  # the server's account, where we are root, must be able to enter
        held = bench(arguments, Path(folder))
    print("the claim holds" if held else "THE CLAIM DOES NOT HOLD")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
