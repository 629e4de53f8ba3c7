"""A run and its workspace: every Session arrives once, whatever dies or is away meanwhile, and no step waits for it."""

import json
import re
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from test_flows_kill import Run, until

from relaxforge.cli.main import main
from relaxforge.store import artifacts, identity, training, trials

PASSWORD = "correct-horse-battery"
OFF = "http://127.0.0.1:9"
"""A port on which nobody listens."""


class Store:
    """What the workspace's database holds of organization a."""

    def __init__(self, on_loop, database, scope, urls, folder):
        self.scope = scope
        self._on_loop, self._database = on_loop, database
        self.url_file = folder / "database-url"
        self.url_file.write_text(urls["app"])
        self.url_file.chmod(0o600)
        self.flags = {"database_url_file": self.url_file, "workspace_organization": scope.organization_id}

    def call(self, function, *args, **values):
        async def go():
            async with self._database.scope(self.scope) as tx:
                return await function(tx, *args, **values)

        return self._on_loop(go())

    def run(self):
        [row] = self.call(training.list_runs, before=None, limit=10)
        return row

    def runs(self):
        return self.call(training.list_runs, before=None, limit=10)

    def trials(self):
        rows = self.call(trials.list_trials, before=None, limit=1000, training_run_id=self.run()["id"])
        return {row["session_key"]: row for row in rows}

    def trajectory(self, row):
        return json.loads(self.call(artifacts.get, row["trajectory_artifact_id"]).body)

    def token(self):
        """An API token of the owner that may send evidence."""
        given = {"user_id": self.scope.user_id, "name": "run", "scopes": ["ingest"]}
        _, token = self.call(identity.create_token, expires_at=datetime.now(UTC) + timedelta(hours=1), **given)
        return token


@pytest.fixture
def store(on_loop, app_database, two_organizations, database_urls, tmp_path):
    return Store(on_loop, app_database, two_organizations.a, database_urls, tmp_path)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@contextmanager
def serving(store, folder, port):
    """`relaxforge serve` on the store's database; its URL."""
    from relaxforge.store.vault import open_vault

    key = folder / "keys"
    if not key.exists():
        open_vault(key)
    words = [sys.executable, "-m", "relaxforge.cli.main", "serve", "--database-url-file", store.url_file,
             "--secrets-key-file", key, "--port", str(port)]  # fmt: skip
    with (folder / "serve.log").open("ab") as log, subprocess.Popen(words, stdout=log, stderr=log) as server:
        try:
            until(lambda: server.poll() is not None or answers(port))
            assert server.poll() is None, (folder / "serve.log").read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            server.send_signal(signal.SIGTERM)


def answers(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).is_success
    except httpx.TransportError:
        return False


def keys_in(run_dir: Path):
    """The id of every Session in the dump, in a list, so that doubles show."""
    files = (run_dir / "rollouts").glob("*.jsonl")
    return sorted(json.loads(line)["session_id"] for file in files for line in file.read_text().splitlines())


REPLY = {"replies": ["Hi."], "cycle": True}
GOOD = {"input": "a", "metadata": {"reward": {"score": 0.25, "stage_order": 1, "stage_payment": 0}}}
BEYOND = {"input": "b", "metadata": {"reward": {"score": 7.5}}}
FAILING = {"input": "c", "metadata": {}}


def test_every_session_is_there_with_its_category_its_log_and_without_secrets(flow, store, tmp_path):
    (tmp_path / "held-out.jsonl").write_text(json.dumps(GOOD) + "\n" + json.dumps(FAILING) + "\n")
    run = flow(
        "reporter", [GOOD, FAILING, BEYOND], [REPLY], **store.flags, num_rollout=2, reward_key="score",
        agent_env=f"SHOP_PASSWORD={PASSWORD}", keep_session_dirs="failed", eval_interval=1, skip_eval_before_train=True,
        eval_prompt_data=["held-out", tmp_path / "held-out.jsonl"],
    )  # fmt: skip
    assert run.code == 0, run.err
    assert "evidence: all of it is in" in run.err
    rows = store.trials()
    assert sorted(rows) == keys_in(run.run_dir)
    lines = {line["session_id"]: line for file in (run.run_dir / "rollouts").glob("*.jsonl")
             for line in map(json.loads, file.read_text().splitlines())}  # fmt: skip
    for key, row in rows.items():
        assert (row["status"], row["mode"], row["seed"]) == tuple(lines[key][k] for k in ("status", "mode", "seed"))
        assert row["rollout_id"] is not None
    good, failed, beyond = (
        [row for row in rows.values() if row["mode"] == "train" and row["task_index"] == task] for task in (0, 1, 2)
    )
    assert good[0]["reward"] == 0.25
    assert good[0]["stages"] == {"stage_order": 1, "stage_payment": 0}
    assert (beyond[0]["reward"], beyond[0]["reward_status"]) == (None, "out_of_range")
    assert json.loads(beyond[0]["raw_reward"]) == {"score": 7.5}
    assert (failed[0]["reward"], failed[0]["failure_category"]) == (None, "agent_error")
    assert {row["reward"] for row in rows.values() if row["mode"] == "eval" and row["failure_category"]} == {0.0}
    kept = store.trajectory(failed[0])
    assert "my password is [redacted]" in kept["log"]
    for row in rows.values():
        everything = json.dumps(store.trajectory(row)) + json.dumps(row, default=str)
        everything += store.call(artifacts.get, row["session_artifact_id"]).body.decode()
        assert PASSWORD not in everything
    told = store.call(training.get_run, store.run()["id"])
    assert PASSWORD not in json.dumps(told["configuration"])
    assert told["last_step"] == 1
    assert [p["step"] for p in store.call(training.series, told["id"], ["eval/held-out/reward"], "eval")] == [1, 2]


def test_over_http_the_same_arrives_and_sending_again_doubles_nothing(flow, store, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("RELAXFORGE_WORKSPACE_TOKEN", store.token())
    with serving(store, tmp_path, free_port()) as url:
        run = flow("reporter", [GOOD, FAILING], [REPLY], workspace_url=url, num_rollout=2, reward_key="score")
        assert run.code == 0, run.err
        assert f"evidence: all of it is in {url}" in run.err
        before = store.trials()
        assert sorted(before) == keys_in(run.run_dir)
        for file in (run.run_dir / "workspace").glob("*.json"):
            file.unlink()  # what was sent is forgotten, so everything is sent once more
        assert main(["send", str(run.run_dir), "--workspace-url", url]) == 0
        assert "all of it" in capfd.readouterr().err
    assert store.trials() == before


def test_a_workspace_that_is_away_ends_no_run_and_gets_everything_later(flow, store, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("RELAXFORGE_WORKSPACE_TOKEN", store.token())
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    run = flow(
        "reporter", [GOOD], [REPLY], workspace_url=OFF, workspace_drain_timeout=0.5, num_rollout=3, reward_key="score",
        agent_env="SHOP_PASSWORD",
    )  # fmt: skip
    assert run.code == 0, run.err
    assert len(run.lines("2")) == 1
    assert "6 lines of evidence are not in http://127.0.0.1:9 yet" in run.err
    assert f"relaxforge send {run.run_dir} --workspace-url {OFF}" in run.err
    with serving(store, tmp_path, free_port()) as url:
        monkeypatch.delenv("SHOP_PASSWORD")
        words = ["send", str(run.run_dir), "--workspace-url", url]
        assert main(words) == 2
        assert "set the variable SHOP_PASSWORD" in capfd.readouterr().err
        assert main([*words, "--agent-env", f"SHOP_PASSWORD={PASSWORD}"]) == 0
    assert sorted(store.trials()) == keys_in(run.run_dir)


def test_a_token_that_may_not_send_is_said_at_the_end(flow, store, tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXFORGE_WORKSPACE_TOKEN", "rf_nobody")
    with serving(store, tmp_path, free_port()) as url:
        run = flow("reporter", [GOOD], [REPLY], workspace_url=url, reward_key="score")
    assert run.code == 0
    assert "answered 401" in run.err
    assert store.runs() == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"workspace_url": "workspace.example.org"}, "--workspace-url must be like https://"),
        ({"workspace_url": OFF}, "--workspace-url needs an API token"),
        ({"workspace_url": OFF, "database_url_file": "x"}, "exclude each other"),
        ({"database_url_file": "x"}, "needs --workspace-organization"),
        ({"database_url_file": "missing", "workspace_organization": secrets.token_hex(16)}, "cannot be read"),
    ],
)
def test_a_setting_that_cannot_work_ends_before_anything_starts(flow, flags, message):
    run = flow("reporter", [GOOD], [REPLY], **flags)
    assert run.code == 2
    assert message in run.err
    assert not run.run_dir.exists()
    assert message in (checked := flow("reporter", [GOOD], [REPLY], command="doctor", **flags)).out + checked.err
    assert checked.code == 2


class SentRun(Run):
    """A run as a process of its own that sends its evidence; ``senders`` are the processes that do."""

    def senders(self):
        return self.children("evidence_process")

    def ended(self):
        assert self.process.wait(90) == 0, self.output()


@pytest.fixture
def sent_run(tmp_path):
    runs = []

    def start(*flags):
        runs.append(SentRun(tmp_path, "rollout", *map(str, flags)))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()


def words(store):
    return [f"--{name.replace('_', '-')}={value}" for name, value in store.flags.items()]


def test_a_sender_that_is_killed_again_and_again_doubles_and_loses_nothing(sent_run, store):
    run = sent_run(*words(store), "--num-rollout", "12")
    run.hold.touch()
    for kills in range(1, 4):
        until(lambda done=kills: len(list((run.run_dir / "rollouts").glob("*.jsonl"))) >= 3 * done)
        for sender in run.senders():
            sender.kill()
    run.ended()
    assert "evidence: all of it is in" in run.output()
    assert len(keys_in(run.run_dir)) == 24
    assert sorted(store.trials()) == keys_in(run.run_dir)
    assert store.run()["last_step"] == 11


def test_a_run_that_is_killed_and_started_again_is_one_run_with_both_attempts(sent_run, store):
    run = sent_run(*words(store))
    until(run.held_agents)  # the second step waits for its file
    until(lambda: store.runs() and len(store.trials()) == 2)
    [sender] = run.senders()
    run.process.kill()
    run.process.wait()
    until(lambda: not sender.is_running())
    run.hold.touch()
    run.process = run.start()
    run.ended()
    assert len(store.runs()) == 1
    assert sorted(store.trials()) == keys_in(run.run_dir)
    assert {key.endswith("-i1") for key in store.trials()} == {True, False}


def test_a_workspace_that_comes_in_the_middle_gets_what_was_before(sent_run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXFORGE_WORKSPACE_TOKEN", store.token())
    port = free_port()
    run = sent_run(f"--workspace-url=http://127.0.0.1:{port}")
    until(run.held_agents)
    log = run.run_dir / "logs" / "evidence.log"
    until(lambda: "workspace_away" in log.read_text())
    with serving(store, tmp_path, port):
        until(lambda: store.runs() and len(store.trials()) == 2)
        run.hold.touch()
        run.ended()
    assert sorted(store.trials()) == keys_in(run.run_dir)
    assert re.search(r"evidence: all of it is in http://127\.0\.0\.1:\d+\n", run.output())


def test_nobody_has_to_wait_for_the_rest(sent_run, tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXFORGE_WORKSPACE_TOKEN", "token")
    run = sent_run(f"--workspace-url={OFF}", "--workspace-drain-timeout", "600")
    run.hold.touch()
    until(lambda: "sending the rest of the evidence: 9 lines" in run.output())
    run.process.send_signal(signal.SIGINT)
    run.ended()
    assert "9 lines of evidence are not in http://127.0.0.1:9 yet: you did not wait for it" in run.output()
