"""A PostgreSQL of one's own: prepared by an administrator, served with a credential that owns nothing."""

from __future__ import annotations

import re
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import psycopg
import pytest

from relaxforge.cli.main import main
from relaxforge.store.embedded import EmbeddedPostgres
from relaxforge.store.urls import with_parts

SERVE = (sys.executable, "-m", "relaxforge.cli.main", "serve")


@pytest.fixture(scope="module")
def own_server():
    """A server whose roles nobody else uses: their passwords change here."""
    folder = Path(tempfile.mkdtemp(prefix="relaxforge-own-"))
    folder.chmod(0o711)
    with EmbeddedPostgres(folder / "postgres", {"fsync": "off"}) as server:
        yield server.admin_url
    shutil.rmtree(folder)


@pytest.fixture
def own_database(own_server, tmp_path):
    """A file with the administrator's URL of an empty database."""
    name = f"relaxforge_own_{secrets.token_hex(4)}"
    with psycopg.connect(own_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    file = tmp_path / "admin-url"
    file.touch(mode=0o600)
    file.write_text(with_parts(own_server, dbname=name))
    yield file
    with psycopg.connect(own_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def migrate(admin_url, folder, *flags):
    return main(["migrate", "--admin-url-file", str(admin_url), "--credentials-dir", str(folder), *flags])


def served(folder, port_flag="0"):
    words = ("--database-url-file", str(folder / "app-url"), "--secrets-key-file", str(folder / "secrets-key"))
    return subprocess.Popen(
        (*SERVE, *words, "--port", port_flag), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_an_administrator_prepares_a_database_and_serve_runs_on_it(own_database, tmp_path, capsys):
    folder = tmp_path / "credentials"
    assert migrate(own_database, folder, "--owner-email", "Ada@Example.org", "--new-credentials") == 0
    said = capsys.readouterr().out
    assert "applied 0001_first, " in said
    password = re.search(r"one-time password (\S+)", said)[1]
    assert re.search(r"^organization [0-9a-f-]{36} Workspace$", said, re.MULTILINE)
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    process = served(folder)
    try:
        url = re.match(r"workspace: (\S+)", process.stdout.readline())[1]
        with httpx.Client(base_url=url, trust_env=False) as client:
            me = client.post("/api/v1/sign-in", json={"email": "ada@example.org", "password": password}).json()
        assert (me["role"], me["mustChangePassword"]) == ("owner", True)
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")


def test_migrating_again_changes_nothing_and_keeps_the_credentials(own_database, tmp_path, capsys):
    folder = tmp_path / "credentials"
    migrate(own_database, folder, "--new-credentials")
    before = {file.name: file.read_text() for file in folder.iterdir()}
    capsys.readouterr()
    assert migrate(own_database, folder) == 0
    said = capsys.readouterr().out
    assert "nothing: the schema is up to date" in said
    assert "password" not in said
    assert {file.name: file.read_text() for file in folder.iterdir()} == before


def test_credentials_that_are_lost_are_not_replaced_unasked(own_database, tmp_path, capsys):
    migrate(own_database, tmp_path / "credentials", "--new-credentials")
    capsys.readouterr()
    assert migrate(own_database, tmp_path / "elsewhere") == 2
    assert "--new-credentials" in capsys.readouterr().err


def test_a_forgotten_password_is_replaced_by_one_for_once(own_database, tmp_path, capsys):
    folder = tmp_path / "credentials"
    migrate(own_database, folder, "--owner-email", "ada@example.org", "--new-credentials")
    capsys.readouterr()
    assert migrate(own_database, folder, "--new-password-for", "ada@example.org") == 0
    assert "one-time password for ada@example.org: " in capsys.readouterr().out
    assert migrate(own_database, folder, "--new-password-for", "nobody@example.org") == 2
    assert "nobody has the e-mail address" in capsys.readouterr().err


def test_a_login_that_could_see_everything_is_refused(own_database, tmp_path, capsys):
    folder = tmp_path / "credentials"
    migrate(own_database, folder, "--new-credentials")
    (folder / "app-url").write_text(own_database.read_text())
    process = served(folder)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "is a superuser, so that it sees every organization; connect as relaxforge_app" in err
    assert len(err.splitlines()) == 1
