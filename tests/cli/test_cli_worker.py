"""``relaxforge worker``: what it refuses before it claims anything, and how it keeps its credential."""

from __future__ import annotations

import os
import subprocess
import sys
from uuid import uuid4

import pytest

from relaxforge.cli.main import main

ORGANIZATION = str(uuid4())
NOWHERE = "postgresql://relaxforge_worker:x@127.0.0.1:9/none"


@pytest.fixture
def url_file(tmp_path, monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr("relaxforge.cli.worker.protect_memory", lambda: None)  # this process is the tests'
    path = tmp_path / "worker-url"
    path.write_text(NOWHERE)
    path.chmod(0o600)
    return path


def worker(*argv):
    """``relaxforge worker`` as a process: its exit code and what it said."""
    environment = {name: value for name, value in os.environ.items() if "DATABASE" not in name}
    ended = subprocess.run(
        [sys.executable, "-m", "relaxforge.cli.main", "worker", *argv],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o666])
def test_a_credential_that_others_can_read_is_refused(url_file, capsys, mode):
    url_file.chmod(mode)
    assert main(["worker", "--database-url-file", str(url_file), "--organization", ORGANIZATION]) == 2
    assert f"can be read by other users; run: chmod 600 {url_file}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["DATABASE_URL", "PGPASSWORD"])
def test_a_credential_in_the_environment_is_refused(url_file, capsys, monkeypatch, name):
    monkeypatch.setenv(name, "postgresql://secret")
    assert main(["worker", "--database-url-file", str(url_file), "--organization", ORGANIZATION]) == 2
    said = capsys.readouterr().err
    assert f"{name} is set" in said
    assert "secret" not in said


def test_a_url_in_the_place_of_its_file_is_not_repeated(url_file, capsys):
    assert main(["worker", "--database-url-file", "postgresql://w:hunter2@h/d", "--organization", ORGANIZATION]) == 2
    said = capsys.readouterr().err
    assert "--database-url-file takes the path of a file that holds the URL" in said
    assert "hunter2" not in said


def test_a_credential_is_no_argument(url_file, capsys):
    assert main(["worker", "--database-url", "postgresql://w:hunter2@h/d", "--organization", ORGANIZATION]) == 2
    said = capsys.readouterr().err
    assert "unknown setting --database-url" in said
    assert "hunter2" not in said


def test_its_memory_is_protected_before_the_credential_is_read(url_file, monkeypatch):
    done = []
    monkeypatch.setattr("relaxforge.cli.worker.protect_memory", lambda: done.append("protected"))
    monkeypatch.setattr("relaxforge.cli.worker.read_private", lambda *_: done.append("read") or NOWHERE)
    main(["worker", "--database-url-file", str(url_file)])
    assert done == ["protected", "read"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "--database-url-file or with --database-url-fd"),
        (("--database-url-file", "a", "--database-url-fd", "3"), "--database-url-file or with --database-url-fd"),
        (("--database-url-file", "/no/such/file"), "/no/such/file cannot be read"),
        (("--database-url-fd", "999"), "--database-url-fd 999 cannot be read"),
    ],
)
def test_one_readable_credential_is_needed(url_file, capsys, argv, words):
    assert main(["worker", *argv, "--organization", ORGANIZATION]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "--organization ID, or --all-organizations"),
        (("--all-organizations", "--organization", ORGANIZATION), "--organization ID, or --all-organizations"),
        (("--organization", "mine"), "--organization takes ids, got mine"),
        (("--all-organizations", "--agent-sandbox", "none"), "it needs --agent-sandbox bwrap"),
        (("--organization", ORGANIZATION, str(uuid4()), "--agent-sandbox", "none"), "it needs --agent-sandbox bwrap"),
    ],
)
def test_it_says_whose_jobs_and_behind_which_walls(url_file, capsys, argv, words):
    assert main(["worker", "--database-url-file", str(url_file), *argv]) == 2
    assert words in capsys.readouterr().err


def test_a_database_that_is_not_there_is_an_error_in_one_line_without_its_password(url_file, tmp_path):
    code, said = worker(
        "--database-url-file", str(url_file), "--organization", ORGANIZATION, "--work-dir", str(tmp_path / "work"),
        "--agent-sandbox", "none",
    )  # fmt: skip
    assert code == 1
    assert "agents_unconfined" in said
    assert "the database cannot be reached" in said
    assert "Traceback" not in said
    assert ":x@" not in said


def test_a_descriptor_gives_the_credential_and_no_file_holds_it(url_file, tmp_path):
    reading, writing = os.pipe()
    os.write(writing, NOWHERE.encode())
    os.close(writing)
    environment = {name: value for name, value in os.environ.items() if "DATABASE" not in name}
    ended = subprocess.run(
        [
            sys.executable, "-m", "relaxforge.cli.main", "worker", "--database-url-fd", str(reading),
            "--organization", ORGANIZATION, "--work-dir", str(tmp_path / "work"), "--agent-sandbox", "none",
        ],
        env=environment, pass_fds=(reading,), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(reading)
    assert (ended.returncode, "cannot be reached" in ended.stderr) == (1, True)


def test_without_a_sandbox_it_does_not_start_unless_it_is_told_to(url_file, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["worker", "--database-url-file", str(url_file), "--organization", ORGANIZATION]) == 2
    assert "needs bubblewrap, and there is no bwrap on PATH" in capsys.readouterr().err


def test_the_memory_of_a_worker_is_its_own():
    code = (
        "import ctypes, os\n"
        "from relaxforge.cli.worker import protect_memory\n"
        "protect_memory()\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), os.stat('/proc/self/environ').st_uid)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "0 0\n"
