"""Workers as processes, killed, frozen, and left without their database: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil
import pytest
from worker_parts import HEAD, Workspace, wait_for

from relaxforge.core.errors import StorageError
from relaxforge.store.admin import create_first_owner, install
from relaxforge.store.database import Database, Scope
from relaxforge.store.embedded import EmbeddedPostgres
from relaxforge.store.urls import with_parts

SHORT_LEASE = ("--lease", "3")


@pytest.fixture
def workspace(on_loop, app_database, database_urls, two_organizations, tmp_path):
    return Workspace(on_loop, app_database, database_urls, two_organizations.a, tmp_path)


def held_agent(folder):
    """An agent that notes its process id, and goes on when the file ``gate`` is there."""
    return HEAD + (
        "say(user('x'))\n"
        f"open({str(folder)!r} + '/pid-%d' % os.getpid(), 'w').close()\n"
        f"while not os.path.exists({str(folder)!r} + '/gate'): time.sleep(0.05)\n"
        "output(1.0)\n"
    )


def agents_of(folder):
    return [int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")]


def ended(workspace, run_id):
    return lambda: workspace.run(run_id)["ended_at"]


def test_a_killed_worker_costs_its_attempt_a_row_and_another_worker_goes_on(workspace, tmp_path):
    run_id = workspace.start(workspace.publish(held_agent(tmp_path)), attempt_count=2, concurrency=1)
    with workspace.process(*SHORT_LEASE) as first:
        (agent,) = wait_for(lambda: agents_of(tmp_path))
        first.send_signal(signal.SIGKILL)
        first.wait()
    wait_for(lambda: not psutil.pid_exists(agent))
    (tmp_path / "gate").touch()
    with workspace.process(*SHORT_LEASE) as second:
        wait_for(ended(workspace, run_id))
        second.terminate()
        assert second.wait(30) == 0
    rows = workspace.attempts(run_id)
    found = [
        (row["attempt_no"], row["retry_index"], row["status"], row["reward"], row["failure_category"]) for row in rows
    ]
    assert found == [
        (1, 0, "failed", None, "worker_lost"), (1, 1, "completed", 1.0, None), (2, 0, "completed", 1.0, None),
    ]  # fmt: skip
    assert rows[1]["retry_of_id"] == rows[0]["id"]
    run = workspace.run(run_id)
    assert (run["status"], run["job_attempt"], run["summary"]["n"], run["summary"]["attempted"]) == (
        "succeeded",
        2,
        2,
        2,
    )


def test_the_late_result_of_a_frozen_worker_is_dropped_and_counted(workspace, tmp_path):
    run_id = workspace.start(workspace.publish(held_agent(tmp_path)), attempt_count=1)
    with workspace.process(*SHORT_LEASE) as zombie:
        wait_for(lambda: agents_of(tmp_path))
        zombie.send_signal(signal.SIGSTOP)
        with workspace.process(*SHORT_LEASE) as worker:
            wait_for(lambda: len(agents_of(tmp_path)) == 2)
            (tmp_path / "gate").touch()
            wait_for(ended(workspace, run_id))
            before = workspace.attempts(run_id)
            zombie.send_signal(signal.SIGCONT)
            wait_for(lambda: b"lease_lost" in (tmp_path / "worker.log").read_bytes())
            for process in (worker, zombie):
                process.terminate()
                assert process.wait(30) == 0
    assert workspace.attempts(run_id) == before
    assert [(row["reward"], row["failure_category"]) for row in before] == [(None, "worker_lost"), (1.0, None)]
    assert workspace.admin("SELECT count(*) FROM rollouts") == [(2,)]
    assert workspace.run(run_id)["summary"]["n"] == 1


def test_two_worker_processes_share_many_runs_without_doubling_one(workspace):
    published = workspace.publish()
    workspace.admin("UPDATE organizations SET most_running_jobs = 8")
    run_ids = [workspace.start(published, attempt_count=2) for _ in range(3)]
    with workspace.process() as first, workspace.process() as second:
        for run_id in run_ids:
            wait_for(ended(workspace, run_id), 100)
        for process in (first, second):
            process.terminate()
            assert process.wait(30) == 0
    rows = [row for run_id in run_ids for row in workspace.attempts(run_id)]
    assert Counter((row["status"], row["reward"], row["retry_index"]) for row in rows) == {("completed", 1.0, 0): 6}


@pytest.fixture
def own_server(on_loop):
    """A server of this test's own, which it may kill; and a workspace on it."""
    folder = Path(tempfile.mkdtemp(prefix="relaxforge-test-"))
    folder.chmod(0o711)  # the server's account, where we are root, must be able to enter
    server = EmbeddedPostgres(folder)
    server.start()
    install(server.admin_url, app_password=server.app_password, worker_password=server.worker_password)
    organization, user = create_first_owner(
        server.admin_url,
        organization="o",
        email="o@example.org",
        name="o",
        password_hash="-",
        must_change_password=False,
    )
    urls = {
        "admin": with_parts(server.admin_url, options="-csearch_path=relaxforge"),
        "app": with_parts(server.admin_url, user="relaxforge_app", password=server.app_password),
        "worker": with_parts(server.admin_url, user="relaxforge_worker", password=server.worker_password),
    }
    app = Database(urls["app"])
    on_loop(app.open())
    yield server, Workspace(on_loop, app, urls, Scope(organization, user), folder)
    on_loop(app.close())
    server.stop()
    shutil.rmtree(folder)


def test_a_database_that_is_killed_and_comes_back_loses_no_finished_attempt(own_server, tmp_path):
    server, workspace = own_server
    run_id = workspace.start(workspace.publish(held_agent(tmp_path)), attempt_count=4, concurrency=2)
    with workspace.process("--lease", "60") as worker:
        wait_for(lambda: len(agents_of(tmp_path)) == 2)
        os.kill(server.pid, signal.SIGKILL)
        (tmp_path / "gate").touch()
        agents = agents_of(tmp_path)
        # Both attempts end while nobody can be told.
        wait_for(lambda: not any(psutil.pid_exists(agent) for agent in agents))
        wait_for(lambda: b"database_away" in (workspace.folder / "worker.log").read_bytes())
        server.stop()
        server.start()
        wait_for(lambda: answers(workspace, run_id))
        wait_for(ended(workspace, run_id))
        worker.terminate()
        assert worker.wait(30) == 0
    rows = workspace.attempts(run_id)
    assert Counter((row["status"], row["reward"], row["retry_index"]) for row in rows) == {("completed", 1.0, 0): 4}
    assert workspace.admin("SELECT count(*), count(DISTINCT trial_id) FROM rollouts") == [(4, 4)]
    assert workspace.run(run_id)["job_attempt"] == 1


def answers(workspace, run_id):
    """Whether the database is back; a pool's connections from before have to be used once to be found dead."""
    try:
        return workspace.run(run_id)
    except StorageError:
        return None


def test_a_second_signal_ends_a_worker_at_once(workspace, tmp_path):
    run_id = workspace.start(workspace.publish(held_agent(tmp_path)), attempt_count=1)
    with workspace.process() as worker:
        (agent,) = wait_for(lambda: agents_of(tmp_path))
        worker.terminate()
        wait_for(lambda: b"a second signal" in (tmp_path / "worker.log").read_bytes())
        worker.terminate()
        assert worker.wait(30) == 0
    assert not psutil.pid_exists(agent)
    assert [row["status"] for row in workspace.attempts(run_id)] == ["failed", "created"]
    assert workspace.run(run_id)["job_state"] == "queued"


def test_the_end_of_its_lifeline_ends_a_worker_with_its_agents(workspace, tmp_path):
    run_id = workspace.start(workspace.publish(held_agent(tmp_path)), attempt_count=1)
    url = tmp_path / "url"
    url.write_text(workspace.urls["worker"])
    url.chmod(0o600)
    reading, writing = os.pipe()
    worker = subprocess.Popen(
        [
            sys.executable, "-m", "relaxforge.cli.main", "worker", "--database-url-file", str(url), "--organization",
            str(workspace.scope.organization_id), "--work-dir", str(tmp_path / "work"), "--lifeline-fd", str(reading),
            "--agent-sandbox", "none",
        ],
        pass_fds=(reading,), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(reading)
    try:
        (agent,) = wait_for(lambda: agents_of(tmp_path))
        os.close(writing)
        assert worker.wait(30) == 0
        assert not psutil.pid_exists(agent)
    finally:
        worker.kill()
        worker.wait()
    assert [row["failure_category"] for row in workspace.attempts(run_id)] == ["worker_lost", None]
