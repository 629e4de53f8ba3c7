"""Claim: 1,000 trial results per minute reach the store with 4 workers, and kill -9 loses and doubles none.

A real PostgreSQL that writes to disk, and four worker processes that claim jobs and keep results as `relaxforge worker`
does (lease, heartbeat, artifacts, rows); agents are left out. First undisturbed, then with workers killed every few
seconds and PostgreSQL killed once, each started again at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from gateway_parts import RESULTS, save
from relaxforge.core.errors import StorageError
from relaxforge.core.evidence import TrajectoryStep, TrialEvidence, Verdict
from relaxforge.export.trajectory import trajectory_file
from relaxforge.runs.trial_book import TrialBook
from relaxforge.store import environments, evaluations, jobs
from relaxforge.store.admin import create_first_owner, install
from relaxforge.store.database import Database, Scope
from relaxforge.store.embedded import EmbeddedPostgres
from relaxforge.store.errors import LeaseLostError
from relaxforge.store.heartbeat import Heartbeat
from relaxforge.store.trials import Author, Planned
from relaxforge.store.urls import with_parts

PER_MINUTE = 1_000
WORKERS, CONCURRENCY, LEASE_S = 4, 4, 3.0
KILL_EVERY_S = 5.0
TASKS, ATTEMPTS = 10, 8
STEPS, CHARACTERS, SESSION_BYTES = 50, 400, 60_000
"""Of one result: the steps of its trajectory, the characters of an observation, and the bytes of its dump line."""


def evidence(trial: Planned) -> TrialEvidence:
    steps = [TrajectoryStep(n, "bash", f"step {n}", os.urandom(CHARACTERS // 2).hex()) for n in range(1, STEPS + 1)]
    return TrialEvidence(
        status="completed",
        verdict=Verdict(float(trial.attempt % 2), "scored", stages={"stage_a": 1}),
        trajectory=trajectory_file("log", steps),
        session=os.urandom(SESSION_BYTES // 2).hex().encode(),
        step_count=STEPS,
        turns=STEPS,
    )


async def work(url: str, organization: UUID) -> None:
    """A worker without agents: claims and keeps until it is killed."""
    async with Database(url, most=CONCURRENCY) as database:
        while True:
            try:
                lease = await jobs.claim(database, uuid4().hex, LEASE_S, organization)
            except StorageError as error:  # the database is being restarted
                print(f"claim: {error}", file=sys.stderr)
                lease = None
            if lease is None:
                await asyncio.sleep(0.2)
                continue
            heartbeat = Heartbeat(url, lease, LEASE_S, cancelled=lambda _: None, lost=lambda: None)
            heartbeat.start()
            try:
                await keep_all(TrialBook(database, lease))
            except LeaseLostError as error:
                print(error, file=sys.stderr)
            finally:
                await asyncio.to_thread(heartbeat.join)


async def keep_all(book: TrialBook) -> None:
    _, run = await book.read()
    await book.open(run["id"], "the worker was lost")
    while not book.closed and (planned := await book.plan(run, TASKS, Author("agent", "1", "none"))):
        queue = deque(planned)
        await asyncio.gather(*(lane(book, run["id"], queue) for _ in range(CONCURRENCY)))


async def lane(book: TrialBook, run_id: UUID, queue: deque[Planned]) -> None:
    while queue:
        trial = queue.popleft()
        await book.started(trial, f"s{trial.number}")
        await book.finished(run_id, trial, evidence(trial))


class Workers:
    """Four processes; one that is killed is replaced at once."""

    def __init__(self, url: str, organization: UUID, log: Path) -> None:
        self._command = [sys.executable, __file__, "--work", url, str(organization)]
        self._log = log.open("ab")
        self._processes = [self._start() for _ in range(WORKERS)]
        self.killed = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=self._log, stderr=self._log)

    def kill_one(self) -> None:
        number = self.killed % WORKERS
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._start()
        self.killed += 1

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._log.close()


async def enqueue(url: str, scope: Scope, runs: int) -> None:
    async with Database(url) as database, database.scope(scope) as tx:
        environment = await environments.create_environment(tx, name=f"bench-{uuid4()}")
        version = await environments.publish(
            tx, environment["id"], manifest={}, files=[], digest=os.urandom(32), package=b"x"
        )
        configuration = await evaluations.create_configuration(
            tx, environment_id=environment["id"], name="c", attempt_count=ATTEMPTS, model={"engine": "scripted"},
            agent_name="agent", agent_version="1",
        )  # fmt: skip
        for _ in range(runs):
            await evaluations.start_run(
                tx, environment_version_id=version.version_id, evaluator_configuration_id=configuration["id"]
            )


def count(url: str, statement: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
        assert row is not None
        return row[0]


def measure(server: EmbeddedPostgres, urls: dict[str, str], scope: Scope, runs: int, log: Path, *, kill: bool) -> Any:
    """Let the workers go through ``runs`` runs; what it took, and what is wrong with what they left."""
    asyncio.run(enqueue(urls["app"], scope, runs))
    with psycopg.connect(urls["admin"], autocommit=True) as admin:
        admin.execute("UPDATE jobs SET max_attempts = 1000 WHERE state = 'queued'")
    workers, restarts = Workers(urls["worker"], scope.organization_id, log), 0
    started = last = time.monotonic()
    try:
        while True:
            time.sleep(0.2)
            try:
                left = count(urls["admin"], "SELECT count(*) FROM evaluation_runs WHERE ended_at IS NULL")
            except psycopg.OperationalError:
                continue
            if not left:
                break
            if kill and time.monotonic() - last > KILL_EVERY_S:
                last = time.monotonic()
                workers.kill_one()
                if workers.killed == 2:
                    os.kill(server.pid, signal.SIGKILL)
                    server.stop()
                    server.start()
                    restarts += 1
        took = time.monotonic() - started
    finally:
        workers.end()
    results = runs * TASKS * ATTEMPTS
    return {
        "results": results, "seconds": took, "per_minute": 60 * results / took, "workers_killed": workers.killed,
        "database_killed": restarts, **check(urls["admin"]),
    }  # fmt: skip


def check(url: str) -> dict[str, int]:
    """Everything that must be nothing, and how many attempts were lost and tried again."""
    kept = "FROM evaluation_trials WHERE status = 'completed'"
    per_attempt = f"SELECT count(*) AS n {kept} GROUP BY evaluation_run_id, task_index, attempt_no"
    expected = f"(SELECT count(*) * {TASKS * ATTEMPTS} FROM evaluation_runs)"
    return {
        "missing": count(url, f"SELECT {expected} - (SELECT count(*) FROM ({per_attempt}) AS a)"),
        "doubled": count(url, f"SELECT count(*) FROM ({per_attempt}) AS a WHERE n > 1"),
        "without_rollout": count(
            url, "SELECT count(*) FROM evaluation_trials t LEFT JOIN rollouts r ON r.trial_id = t.id WHERE r.id IS NULL"
        ),
        "wrong_summaries": count(
            url,
            "SELECT count(*) FROM evaluation_runs "
            f"WHERE status <> 'succeeded' OR (summary->>'n')::int <> {TASKS * ATTEMPTS}",
        ),
        "without_artifact": count(url, f"SELECT count(*) {kept} AND trajectory_artifact_id IS NULL"),
        "tried_again": count(url, "SELECT count(*) FROM evaluation_trials WHERE retry_index > 0"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=25, help=f"evaluation runs of {TASKS * ATTEMPTS} attempts each")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", nargs=2, metavar=("URL", "ORGANIZATION"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        asyncio.run(work(arguments.work[0], UUID(arguments.work[1])))
    with tempfile.TemporaryDirectory(prefix="relaxforge-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # the server's account, where we are root, must be able to enter
        with EmbeddedPostgres(folder / "postgres") as server:
            install(server.admin_url, app_password=server.app_password, worker_password=server.worker_password)
            organization, user = create_first_owner(
                server.admin_url, organization="o", email="o@example.org", name="o", password_hash="-",
                must_change_password=False,
            )  # fmt: skip
            urls = {
                "admin": with_parts(server.admin_url, options="-csearch_path=relaxforge"),
                "app": with_parts(server.admin_url, user="relaxforge_app", password=server.app_password),
                "worker": with_parts(server.admin_url, user="relaxforge_worker", password=server.worker_password),
            }
            scope, log = Scope(organization, user), folder / "workers.log"
            with psycopg.connect(urls["admin"], autocommit=True) as admin:
                admin.execute("UPDATE organizations SET most_running_jobs = 100")
            figures = {
                "undisturbed": measure(server, urls, scope, arguments.runs, log, kill=False),
                "killed": measure(server, urls, scope, arguments.runs, log, kill=True),
            }
    print(json.dumps(figures, indent=1))
    held = all(
        row["per_minute"] >= PER_MINUTE
        and not any(
            row[name] for name in ("missing", "doubled", "without_rollout", "wrong_summaries", "without_artifact")
        )
        for row in figures.values()
    )
    print(f"written to {save('results-store', {'figures': figures, 'target': PER_MINUTE}, arguments.results)}")
    print("the claim holds" if held else "THE CLAIM DOES NOT HOLD")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
