"""A whole workspace from one command: it starts, it ends in order, and it leaves nothing behind."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from relaxforge.cli.main import main
from relaxforge.store.embedded import EmbeddedPostgres

API = "/api/v1"
RELAXFORGE = (sys.executable, "-m", "relaxforge.cli.main")
EXAMPLE = Path(__file__).parents[2] / "examples" / "03-corner-shop"


@pytest.fixture
def state_dir():
    # Not below pytest's folder: as root, PostgreSQL runs as another user, who could not enter it.
    folder = Path(tempfile.mkdtemp(prefix="relaxforge-up-"))
    folder.chmod(0o711)
    yield folder / "state"
    shutil.rmtree(folder)


class Up:
    """A running `relaxforge up`, once it has said where it is."""

    def __init__(self, state_dir, *flags):
        words = (*RELAXFORGE, "up", "--state-dir", str(state_dir), "--port", "0", *flags)
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = []
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("files: "):
                break
        text = "".join(self.said)
        assert "workspace: " in text, text + self.process.stderr.read()
        self.url = re.search(r"workspace: (\S+)", text)[1]
        found = re.search(r"sign in as (\S+) with the one-time password (\S+)", text)
        self.credentials = {"email": found[1], "password": found[2]} if found else None
        self.family = psutil.Process(self.process.pid).children(recursive=True)

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        self.said += self.process.stdout.readlines()
        return self.process.wait(60)

    def gone(self):
        """Every process that it had started has ended."""
        _, alive = psutil.wait_procs(self.family, timeout=30)
        return not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()
        self.process.stdout.close()
        self.process.stderr.close()


@contextlib.contextmanager
def signed_in(up, password="a password of my own"):
    with httpx.Client(base_url=up.url, timeout=60, trust_env=False) as client:
        me = client.post(f"{API}/sign-in", json=up.credentials).json()
        client.headers["X-CSRF-Token"] = me["csrfToken"]
        changed = {"currentPassword": up.credentials["password"], "newPassword": password}
        client.headers["X-CSRF-Token"] = client.post(f"{API}/password", json=changed).json()["csrfToken"]
        yield client


def test_it_serves_says_how_to_sign_in_and_ends_in_order(state_dir):
    with Up(state_dir, "--no-worker") as up:
        assert up.url.startswith("http://127.0.0.1:")
        with signed_in(up) as client:
            assert client.get(f"{API}/me").json()["role"] == "owner"
        modes = {
            name: stat.S_IMODE((state_dir / name).stat().st_mode) for name in ("app-url", "worker-url", "secrets-key")
        }
        assert set(modes.values()) == {0o600}
        again = subprocess.run(
            (*RELAXFORGE, "up", "--state-dir", str(state_dir)), capture_output=True, text=True, timeout=60, check=False
        )
        assert again.returncode == 2
        assert f"another `relaxforge up` runs on {state_dir} (process {up.process.pid}, {up.url})" in again.stderr
        assert up.end() == 0
        assert "ending: no new requests, then the worker, then the database" in "".join(up.said)
        assert up.gone()
        assert up.process.stderr.read() == ""
    with Up(state_dir, "--no-worker") as up:
        assert up.credentials is None, "a password was chosen, so the first one is not shown any more"


def test_a_password_for_once_is_said_again_until_it_was_used(state_dir):
    with Up(state_dir, "--no-worker") as up:
        first = up.credentials
    with Up(state_dir, "--no-worker") as up:
        assert up.credentials == first
        with httpx.Client(base_url=up.url, trust_env=False) as client:
            assert client.post(f"{API}/sign-in", json=first).status_code == 200


def test_a_lost_password_is_replaced_by_a_new_one_for_once(state_dir):
    with Up(state_dir, "--no-worker") as up, signed_in(up):
        email = up.credentials["email"]
    with Up(state_dir, "--no-worker", "--new-password-for", email) as up:
        assert up.credentials["email"] == email
        with signed_in(up, "another password of my own") as client:
            assert client.get(f"{API}/me").json()["role"] == "owner"
    assert main(["up", "--state-dir", str(state_dir), "--port", "0", "--new-password-for", "nobody@example.org"]) == 2


def test_killing_it_leaves_no_process_behind(state_dir):
    with Up(state_dir) as up:
        names = {" ".join(process.cmdline()) for process in up.family}
        assert any("postgres" in name for name in names)
        assert any("relaxforge.cli.main worker" in name for name in names)
        up.process.kill()
        up.process.wait()
        assert up.gone()
    with Up(state_dir, "--no-worker") as up, httpx.Client(base_url=up.url, trust_env=False) as client:
        assert client.get("/health").status_code == 200


def test_a_folder_becomes_a_version_runs_and_leaves_evidence(state_dir, tmp_path, capsys):
    with Up(state_dir) as up, signed_in(up) as client:
        made = client.post(f"{API}/tokens", json={"name": "publish", "scopes": ["read", "publish"]}).json()
        token_file = tmp_path / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(made["token"])
        flags = ["--token-file", str(token_file), "--workspace-url", up.url]
        for _ in range(2):
            assert main(["publish", str(EXAMPLE), *flags]) == 0
        first, again = capsys.readouterr().out.splitlines()
        assert first == again
        assert first.startswith("corner-shop version 1: ")
        (environment,) = client.get(f"{API}/environments").json()["items"]
        configuration = client.post(
            f"{API}/evaluator-configurations",
            json={
                "environmentId": environment["id"], "name": "two", "attemptCount": 2,
                "model": {"engine": "scripted", "replies": "replies.jsonl"},
            },
        ).json()  # fmt: skip
        asked = {
            "environmentVersionId": environment["latestVersionId"], "evaluatorConfigurationId": configuration["id"],
        }  # fmt: skip
        run = client.post(f"{API}/evaluation-runs", json=asked).json()["evaluationRunId"]
        with client.stream("GET", f"{API}/evaluation-runs/{run}/events") as events:
            told = "".join(events.iter_text())
        assert "event: end" in told
        shown = client.get(f"{API}/evaluation-runs/{run}").json()
        worker_log = (state_dir / "worker.log").read_text()
        assert shown["status"] == "succeeded", worker_log
        assert shown["summary"]["attempted"] > 0
        trials = client.get(f"{API}/trials").json()["items"]
        assert {trial["status"] for trial in trials} == {"completed"}, (trials, worker_log)
        assert (
            "stage_inventory" in client.get(f"{API}/rollouts?kind=all").text
            or client.get(f"{API}/partial-rewards").text
        )
        assert up.end() == 0
        assert up.gone()


def test_a_database_of_ones_own_takes_the_place_of_the_embedded_one(state_dir, tmp_path):
    own = state_dir.with_name("own")
    with EmbeddedPostgres(own, {"fsync": "off"}) as server:
        file = tmp_path / "admin-url"
        file.touch(mode=0o600)
        file.write_text(server.admin_url)
        for _ in range(2):
            with Up(state_dir, "--database-url-file", str(file)) as up:
                assert not any("postgres" in process.name() for process in up.family)
                if up.credentials is not None:
                    with signed_in(up) as client:
                        client.post(f"{API}/environments", json={"name": "kept"}).raise_for_status()
                assert up.end() == 0
                assert up.gone()
        assert up.credentials is None
        with psycopg.connect(server.admin_url) as connection:
            assert connection.execute("SELECT name FROM relaxforge.environments").fetchall() == [("kept",)]
    assert not (state_dir / "postgres").exists()


def test_a_foreign_address_without_encryption_is_said_loudly(state_dir):
    with Up(state_dir, "--no-worker", "--host", "0.0.0.0") as up:
        up.end()
        assert up.process.stderr.read().count("WARNING: ") == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["up", "--port", "70000"], "--port must be between 0 and 65535, got 70000"),
        (["up", "--database-url", "postgresql://a:secret@h/d"], "use --database-url-file"),
        (["up", "--stat-dir", "x"], "did you mean --state-dir?"),
        (
            ["serve", "--database-url-file", "missing", "--secrets-key-file", "x"],
            "--database-url-file missing cannot be read",
        ),
        (
            ["migrate", "--admin-url-file", "missing", "--credentials-dir", "x"],
            "--admin-url-file missing cannot be read",
        ),
        (["publish", "nothing", "--token-file", "x"], "nothing is not a folder"),
    ],
)
def test_mistakes_are_one_line_that_names_the_flag(words, said, state_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    more = ["--state-dir", str(state_dir)] if words[0] == "up" else []
    assert main([*words, *more]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "secret" not in error
    assert len(error.splitlines()) == 1


def test_a_secret_that_others_can_read_is_refused(tmp_path, capsys):
    file = tmp_path / "url"
    file.write_text("postgresql://x")
    file.chmod(0o644)
    assert main(["serve", "--database-url-file", str(file), "--secrets-key-file", "x"]) == 2
    assert f"run: chmod 600 {file}" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said_so(state_dir, capfd):
    with Up(state_dir, "--no-worker") as up:
        port = up.url.rpartition(":")[2]
        other = state_dir.with_name("other")
        assert main(["up", "--state-dir", str(other), "--port", port, "--no-worker"]) == 2
        assert f"--port {port} cannot be opened on 127.0.0.1" in capfd.readouterr().err
