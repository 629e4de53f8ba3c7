"""The PostgreSQL that comes along: who gets in, and how it starts and ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import psycopg
import pytest

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.store import guard, programs
from relaxforge.store.admin import create_first_owner, install, organizations
from relaxforge.store.database import Database
from relaxforge.store.embedded import EmbeddedPostgres
from relaxforge.store.urls import with_parts

FAST = {"fsync": "off"}
MANAGED = ("CREATE ROLE managed LOGIN CREATEROLE PASSWORD 'secret'", "CREATE DATABASE managed OWNER managed")
ONLY_AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the server as somebody else")
STARTED_AND_KILLED = """
import os, signal, sys
from pathlib import Path
from relaxforge.store.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), {"fsync": "off"})
server.start()
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def cluster():
    """A folder with a cluster that was started once, so that the tests start it quickly."""
    folder = Path(tempfile.mkdtemp(prefix="relaxforge-test-"))
    folder.chmod(0o711)
    with EmbeddedPostgres(folder, FAST):
        pass
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def server(cluster):
    with EmbeddedPostgres(cluster, FAST) as server:
        yield server


def test_nobody_gets_in_without_a_password(server):
    for user in ("postgres", "relaxforge_app"):
        with pytest.raises(psycopg.OperationalError, match=r"password|does not exist"):
            psycopg.connect(with_parts(server.admin_url, user=user, password=""))
    with psycopg.connect(server.admin_url) as connection:
        rules = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall()
        assert rules == [("scram-sha-256",)]
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


def test_only_we_read_the_passwords_and_only_the_server_reads_the_data(cluster):
    assert (cluster / "passwords.json").stat().st_mode & 0o077 == 0
    assert (cluster / "data").stat().st_mode & 0o077 == 0
    assert not list(cluster.glob("password"))


def test_a_server_that_was_killed_comes_back_at_the_same_address(server):
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept ()")
    url, first = server.admin_url, server.pid
    with server.kept_running():
        gone = psutil.Process(first)
        gone.kill()
        gone.wait()
        deadline = time.monotonic() + 60
        while True:
            try:
                with psycopg.connect(url) as connection:
                    assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
                break
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
    assert server.pid != first


def test_data_and_passwords_are_there_after_a_restart(cluster):
    with EmbeddedPostgres(cluster, FAST) as server:
        first = install(server.admin_url, app_password=server.app_password, worker_password=server.worker_password)
    with EmbeddedPostgres(cluster, FAST) as server:
        again = install(server.admin_url, app_password=server.app_password, worker_password=server.worker_password)
        assert (again.app_url, again.worker_url) == (first.app_url, first.worker_url)
        assert again.applied == ()
        with psycopg.connect(again.app_url) as connection:
            assert connection.execute("SELECT count(*) FROM relaxforge.rollouts").fetchone() == (0,)


def test_the_server_learns_verifiers_and_nobody_shows_a_password(server):
    installed = install(server.admin_url, app_password=server.app_password, worker_password="chosen")
    assert "chosen" in installed.worker_url
    assert "chosen" not in repr(installed)
    with psycopg.connect(server.admin_url) as connection:
        kept = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolpassword IS NOT NULL").fetchall()
    assert kept
    assert all(verifier.startswith("SCRAM-SHA-256$") for (verifier,) in kept)
    assert "chosen" not in (server.folder / "postgres.log").read_text()
    with psycopg.connect(installed.worker_url) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("relaxforge_worker",)


def test_a_folder_serves_one_at_a_time(server, cluster):
    with pytest.raises(ConfigError, match=f"another RelaxForge uses {cluster}; stop it, or choose another folder"):
        EmbeddedPostgres(cluster).start()
    psycopg.connect(server.admin_url).close()


def test_the_server_ends_when_its_program_is_killed(cluster):
    started = subprocess.run(
        [sys.executable, "-c", STARTED_AND_KILLED, str(cluster)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert started.returncode == -signal.SIGKILL, started.stderr
    psutil.wait_procs([process for process in [_process(int(started.stdout))] if process], timeout=30)
    assert not psutil.pid_exists(int(started.stdout))


def test_a_server_that_was_killed_comes_back_with_what_was_committed(cluster):
    with EmbeddedPostgres(cluster, FAST) as server, psycopg.connect(server.admin_url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS kept; CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
        os.kill(server.pid, signal.SIGKILL)
    with EmbeddedPostgres(cluster, FAST) as server, psycopg.connect(server.admin_url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(1,)]


def test_a_server_that_cannot_start_shows_the_end_of_its_log(cluster):
    with pytest.raises(
        StorageError, match=r"did not start; the end of its log:(.|\n)*unrecognized configuration parameter"
    ):
        EmbeddedPostgres(cluster, {"nonsense": "1"}).start()
    with EmbeddedPostgres(cluster, FAST):
        pass


@pytest.fixture
def fresh_folder():
    folder = Path(tempfile.mkdtemp(prefix="relaxforge-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def test_an_administrator_without_superpowers_is_enough(fresh_folder, on_loop):
    """As on a managed server, which nobody installed anything on before."""

    async def check(url, role):
        async with Database(url, most=1) as database, database.outside() as tx:
            await guard.check(tx, role)

    with EmbeddedPostgres(fresh_folder, FAST) as server:
        with psycopg.connect(server.admin_url, autocommit=True) as connection:
            for statement in MANAGED:
                connection.execute(statement)
        url = with_parts(server.admin_url, user="managed", password="secret", dbname="managed")
        installed = install(url)
        assert install(url).applied == ()
        made, _ = create_first_owner(url, organization="Managed", email="first@a.example", password_hash="h")
        assert organizations(url) == [(made, "Managed")]
        on_loop(check(installed.app_url, "app"))
        on_loop(check(installed.worker_url, "worker"))


@ONLY_AS_ROOT
def test_as_root_programs_that_its_account_cannot_reach_are_copied(fresh_folder, tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    found = programs._installed(fresh_folder / "none")
    hidden = programs._copied(found, tmp_path / "environment")
    monkeypatch.setattr(programs, "_installed", lambda version_file: hidden)
    for _ in range(2):
        with EmbeddedPostgres(fresh_folder, FAST) as server:
            assert psutil.Process(server.pid).cmdline()[0].startswith(str(fresh_folder / "programs"))


def test_a_long_path_gets_its_socket_elsewhere(fresh_folder):
    with EmbeddedPostgres(fresh_folder / ("x" * 100), FAST) as server:
        host = Path(psycopg.conninfo.conninfo_to_dict(server.admin_url)["host"])
        psycopg.connect(server.admin_url).close()
    assert not host.exists()


def test_what_does_not_run_has_no_address(cluster):
    stopped = EmbeddedPostgres(cluster)
    with pytest.raises(StorageError, match="start it first"):
        _ = stopped.admin_url
    with pytest.raises(StorageError, match="no PostgreSQL runs in"):
        _ = stopped.pid


@ONLY_AS_ROOT
def test_as_root_a_folder_that_its_account_cannot_enter_is_refused(tmp_path):
    tmp_path.chmod(0o700)
    with pytest.raises(ConfigError, match=r"cannot enter .*; choose a folder such as /var/lib/relaxforge"):
        EmbeddedPostgres(tmp_path / "inside").start()


@ONLY_AS_ROOT
def test_as_root_the_server_is_somebody_else(server):
    assert psutil.Process(server.pid).uids().effective != 0


def _process(pid):
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None
