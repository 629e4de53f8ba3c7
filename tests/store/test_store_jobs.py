"""Jobs in a real database: one claimer per job, leases, fencing, fairness, cancelling."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

import relaxforge
from relaxforge.store import jobs
from relaxforge.store.database import Scope
from relaxforge.store.errors import InvalidError, LeaseLostError
from relaxforge.store.heartbeat import Heartbeat

LEASE_S = 60.0

CLAIMER = """
import asyncio, json, sys
from relaxforge.store import jobs
from relaxforge.store.database import Database

async def main():
    claimed = []
    async with Database(sys.argv[1], most=1) as database:
        print("ready", flush=True)
        sys.stdin.readline()
        while (lease := await jobs.claim(database, sys.argv[2], 60.0, None)) is not None:
            claimed.append(str(lease.job_id))
    print(json.dumps(claimed), flush=True)

asyncio.run(main())
"""


@pytest.fixture
def admin(database_urls):
    with psycopg.connect(database_urls["admin"], autocommit=True) as connection:
        yield connection


@pytest.fixture
def queued(admin):
    """Puts jobs of an organization into the queue, each with a run of its own, and returns their ids."""

    def put(scope: Scope, count: int = 1, **columns) -> list[UUID]:
        organization = scope.organization_id
        version, configuration = environment_of(admin, organization)
        made = []
        for _ in range(count):
            run = admin.execute(
                "INSERT INTO evaluation_runs (organization_id, environment_version_id, evaluator_configuration_id,"
                " configuration, world_seed) VALUES (%s, %s, %s, '{}', 0) RETURNING id",
                (organization, version, configuration),
            ).fetchone()[0]
            names = ["organization_id", "evaluation_run_id", *columns]
            places = ", ".join(["%s"] * len(names))
            row = admin.execute(
                f"INSERT INTO jobs ({', '.join(names)}) VALUES ({places}) RETURNING id",
                (organization, run, *columns.values()),
            )
            made.append(row.fetchone()[0])
        return made

    return put


def environment_of(admin, organization):
    found = admin.execute(
        "SELECT v.id, c.id FROM environment_versions v JOIN evaluator_configurations c USING (organization_id)"
        " WHERE v.organization_id = %s",
        (organization,),
    ).fetchone()
    if found:
        return found

    def insert(table, **columns):
        names, places = ", ".join(columns), ", ".join(["%s"] * len(columns))
        return admin.execute(
            f"INSERT INTO {table} (organization_id, {names}) VALUES (%s, {places}) RETURNING id",
            (organization, *columns.values()),
        ).fetchone()[0]

    environment = insert("environments", name="shop")
    bundle = insert("artifacts", name="bundle", sha256=bytes(32), size_bytes=0, body=b"")
    version = insert(
        "environment_versions",
        environment_id=environment,
        number=1,
        digest=bytes(32),
        manifest="{}",
        files="[]",
        bundle_artifact_id=bundle,
    )
    configuration = insert(
        "evaluator_configurations",
        environment_id=environment,
        name="c",
        attempt_count=1,
        agent_name="a",
        agent_version="1",
        model="{}",
    )
    return version, configuration


def state_of(admin, job_id):
    names = "state, attempt, lease_token, last_error, cancel_mode, late_results"
    row = admin.execute(f"SELECT {names} FROM jobs WHERE id = %s", (job_id,)).fetchone()
    return dict(zip(names.split(", "), row, strict=True))


def expire(admin, job_id):
    admin.execute("UPDATE jobs SET lease_until = now() - interval '1 second' WHERE id = %s", (job_id,))


def claim(on_loop, database, organization=None, worker="w"):
    return on_loop(jobs.claim(database, worker, LEASE_S, organization))


def test_processes_that_claim_at_once_never_get_the_same_job(database_urls, two_organizations, queued, admin):
    admin.execute("UPDATE organizations SET most_running_jobs = 100")
    wanted = queued(two_organizations.a, 20) + queued(two_organizations.b, 20)
    claimers = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMER, database_urls["worker"], f"w{number}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(3)
    ]  # fmt: skip
    for claimer in claimers:
        assert claimer.stdout.readline() == "ready\n"
    for claimer in claimers:
        claimer.stdin.write("go\n")
        claimer.stdin.flush()
    claimed = [json.loads(claimer.communicate(timeout=60)[0]) for claimer in claimers]
    together = [job for part in claimed for job in part]
    assert sorted(together) == sorted(map(str, wanted))


def test_a_claim_tells_whose_job_it_is_and_nothing_else(on_loop, worker_database, two_organizations, queued):
    (job,) = queued(two_organizations.b)
    lease = claim(on_loop, worker_database)
    assert (lease.job_id, lease.organization_id) == (job, two_organizations.b.organization_id)
    assert claim(on_loop, worker_database) is None


def test_a_worker_of_one_organization_gets_jobs_of_no_other(on_loop, worker_database, two_organizations, queued):
    queued(two_organizations.b)
    assert claim(on_loop, worker_database, two_organizations.a.organization_id) is None
    assert claim(on_loop, worker_database, uuid4()) is None
    assert claim(on_loop, worker_database, two_organizations.b.organization_id) is not None


def test_a_job_that_is_not_due_waits(on_loop, worker_database, two_organizations, queued, admin):
    (job,) = queued(two_organizations.a)
    admin.execute("UPDATE jobs SET run_at = now() + interval '1 hour'")
    assert claim(on_loop, worker_database) is None
    admin.execute("UPDATE jobs SET run_at = now() - interval '1 second'")
    assert claim(on_loop, worker_database).job_id == job


def test_a_lease_that_ran_out_is_claimed_again_and_its_holder_can_write_no_more(
    on_loop, worker_database, two_organizations, queued, admin
):
    (job,) = queued(two_organizations.a)
    old = claim(on_loop, worker_database)
    assert claim(on_loop, worker_database) is None
    expire(admin, job)
    new = claim(on_loop, worker_database)
    assert new.job_id == job
    assert new.token != old.token

    async def write(lease, step):
        async with worker_database.scope(lease.scope) as tx:
            return await step(tx, lease)

    for step in (
        jobs.hold,
        jobs.look,
        jobs.release,
        lambda tx, lease: jobs.renew(tx, lease, LEASE_S),
        lambda tx, lease: jobs.finish(tx, lease, "succeeded"),
    ):
        with pytest.raises(LeaseLostError):
            on_loop(write(old, step))
    assert state_of(admin, job)["state"] == "running"
    on_loop(write(new, lambda tx, lease: jobs.finish(tx, lease, "succeeded")))
    assert state_of(admin, job)["state"] == "succeeded"
    with pytest.raises(LeaseLostError):
        on_loop(write(new, lambda tx, lease: jobs.finish(tx, lease, "failed")))


def test_a_job_whose_attempts_are_used_up_is_handed_out_to_be_closed(
    on_loop, worker_database, two_organizations, queued, admin
):
    (job,) = queued(two_organizations.a, max_attempts=2)
    for attempt in (1, 2, 3):
        assert claim(on_loop, worker_database).job_id == job
        assert state_of(admin, job)["attempt"] == attempt
        expire(admin, job)


def test_priority_comes_first_then_the_organization_with_less_under_way(
    on_loop, worker_database, two_organizations, queued
):
    a, b = two_organizations.a, two_organizations.b
    many = queued(a, 3)
    (one,) = queued(b)
    (urgent,) = queued(a, priority=5)
    order = [claim(on_loop, worker_database).job_id for _ in range(5)]
    assert order == [urgent, one, *many]


def test_no_organization_runs_more_than_its_limit(on_loop, worker_database, two_organizations, queued, admin):
    admin.execute(
        "UPDATE organizations SET most_running_jobs = 2 WHERE id = %s", (two_organizations.a.organization_id,)
    )
    queued(two_organizations.a, 3)
    first = claim(on_loop, worker_database)
    assert claim(on_loop, worker_database) is not None
    assert claim(on_loop, worker_database) is None
    # A dead worker's job takes no place: it is what is claimed next.
    expire(admin, first.job_id)
    assert claim(on_loop, worker_database).job_id == first.job_id
    assert claim(on_loop, worker_database) is None


def test_a_released_job_is_claimed_again_and_counts_only_when_it_should(
    on_loop, worker_database, two_organizations, queued, admin
):
    (job,) = queued(two_organizations.a)

    async def release(counts):
        lease = await jobs.claim(worker_database, "w", LEASE_S, None)
        async with worker_database.scope(lease.scope) as tx:
            await jobs.release(tx, lease, error="the engine did not start", counts=counts)

    on_loop(release(True))
    assert state_of(admin, job) == {
        "state": "queued", "attempt": 1, "lease_token": None, "last_error": "the engine did not start",
        "cancel_mode": None, "late_results": 0,
    }  # fmt: skip
    on_loop(release(False))
    assert state_of(admin, job)["attempt"] == 1


def test_cancelling_ends_a_queued_job_and_asks_a_running_one(
    on_loop, app_database, worker_database, two_organizations, queued, admin
):
    waiting, running = queued(two_organizations.a), queued(two_organizations.a, priority=1)
    lease = claim(on_loop, worker_database)
    assert [lease.job_id] == running

    async def cancel(job_id, mode):
        async with app_database.scope(two_organizations.a) as tx:
            return await jobs.cancel(tx, job_id, mode)

    async def look():
        async with worker_database.scope(lease.scope) as tx:
            return await jobs.look(tx, lease)

    assert on_loop(cancel(waiting[0], "at_once"))
    assert state_of(admin, waiting[0])["state"] == "cancelled"
    assert on_loop(look()) is None
    assert not on_loop(cancel(lease.job_id, "finish_running"))
    assert on_loop(look()) == "finish_running"
    assert not on_loop(cancel(lease.job_id, "at_once"))
    assert not on_loop(cancel(lease.job_id, "finish_running"))
    assert on_loop(look()) == "at_once", "the stronger wish stays"
    with pytest.raises(InvalidError, match="mode must be one of finish_running, at_once, got 'gently'"):
        on_loop(cancel(lease.job_id, "gently"))


def test_an_organization_cannot_touch_a_foreign_job(on_loop, app_database, two_organizations, queued, admin):
    (job,) = queued(two_organizations.a)

    async def cancel():
        async with app_database.scope(two_organizations.b) as tx:
            return await jobs.cancel(tx, job, "at_once")

    assert not on_loop(cancel())
    assert state_of(admin, job)["state"] == "queued"


def test_the_application_may_not_claim(on_loop, app_database, two_organizations, queued):
    queued(two_organizations.a)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        claim(on_loop, app_database)


def test_a_heartbeat_renews_hears_of_cancelling_and_of_its_end(
    on_loop, database_urls, worker_database, two_organizations, queued, admin
):
    queued(two_organizations.a)
    lease = claim(on_loop, worker_database)
    admin.execute("UPDATE jobs SET lease_until = now() + interval '1 second'")
    heard, news = [], threading.Event()

    def hear(what):
        heard.append(what)
        news.set()

    heartbeat = Heartbeat(database_urls["worker"], lease, 30.0, cancelled=hear, lost=lambda: hear("lost"), beat_s=0.05)
    heartbeat.start()
    try:
        wait_for(lambda: admin.execute("SELECT lease_until > now() + interval '20 s' FROM jobs").fetchone()[0])
        for mode in ("finish_running", "at_once"):
            news.clear()
            admin.execute("UPDATE jobs SET cancel_mode = %s", (mode,))
            assert news.wait(20)
            assert heard[-1] == mode
        news.clear()
        admin.execute("UPDATE jobs SET lease_token = gen_random_uuid()")
        assert news.wait(20)
        assert heard == ["finish_running", "at_once", "lost"]
    finally:
        heartbeat.join()


def test_a_heartbeat_survives_connections_that_are_cut(
    on_loop, database_urls, worker_database, two_organizations, queued, admin
):
    queued(two_organizations.a)
    lease = claim(on_loop, worker_database)
    heard = []
    heartbeat = Heartbeat(
        database_urls["worker"], lease, 30.0, cancelled=heard.append, lost=lambda: heard.append("lost"), beat_s=0.05
    )
    heartbeat.start()
    try:
        others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'relaxforge_worker'"
        wait_for(lambda: admin.execute(others).fetchone()[0])
        admin.execute("UPDATE jobs SET cancel_mode = 'at_once'")
        wait_for(lambda: heard)
        assert heard == ["at_once"]
    finally:
        heartbeat.join()


def wait_for(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("module", ["store/jobs", "store/heartbeat", "store/trials", "runs/trial_book", "runs/worker"])
def test_no_clock_on_the_wall_of_a_worker_decides_anything(module):
    # Leases begin and end by the clock of the database; a worker's clock may jump to any year.
    source = (Path(relaxforge.__file__).parent / f"{module}.py").read_text()
    assert not re.search(r"time\.time\(|datetime\.now|utcnow|time_ns", source)
