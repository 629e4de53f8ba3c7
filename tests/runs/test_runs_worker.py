"""The worker in this process: real database, real agents, the scripted engine."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time

import pytest
from worker_parts import GOOD, HEAD, Workspace

from relaxforge.core.errors import ConfigError, EngineError
from relaxforge.credit.summary import summarise
from relaxforge.engine.choice import read_budget, read_model
from relaxforge.engine.config import EngineConfig
from relaxforge.engine.scripted.engine import ScriptedEngine
from relaxforge.render.config import RenderConfig
from relaxforge.runs.assignment import Assignment
from relaxforge.runs.engines import EngineShelf
from relaxforge.runs.worker import Worker
from relaxforge.runs.worker_config import WorkerConfig
from relaxforge.store import evaluations


@pytest.fixture
def workspace(on_loop, app_database, database_urls, two_organizations, tmp_path):
    return Workspace(on_loop, app_database, database_urls, two_organizations.a, tmp_path)


def test_a_run_goes_from_the_queue_to_its_summary(workspace):
    run_id = workspace.start(workspace.publish(), attempt_count=3, seed=5)
    workspace.work(run_id)
    run = workspace.run(run_id)
    assert (run["status"], run["job_state"], run["summary"]["passAtK"]["3"]) == ("succeeded", "succeeded", 1.0)
    rows = workspace.attempts(run_id)
    assert [(row["status"], row["reward"], row["seed"]) for row in rows] == [
        ("completed", 1.0, 5), ("completed", 1.0, 6), ("completed", 1.0, 7),
    ]  # fmt: skip
    assert {row["turns"] for row in rows} == {1}
    assert all(row["prompt_tokens"] > 0 and row["completion_tokens"] > 0 for row in rows)
    assert all(row["started_at"] < row["ended_at"] for row in rows)
    trajectory = json.loads(workspace.artifact(rows[0]["trajectory_artifact_id"]))
    assert trajectory["schemaVersion"] == 1
    assert json.loads(trajectory["trajectory"])["steps"][0]["tool"] == "message"
    assert list((workspace.folder / "work").glob("*/*/rollouts")) == [], "stored evidence is not kept twice"


def test_failures_of_the_agent_count_and_are_kept(workspace):
    agent = HEAD + "print('about to fail')\nsay(user('x'))\nsys.exit(3)\n"
    run_id = workspace.start(workspace.publish(agent))
    workspace.work(run_id)
    assert workspace.run(run_id)["summary"] | {"tasks": []} == {
        **summarise([], 2, 1.0), "attempted": 2, "n": 2, "c": 0, "coverage": 1.0, "meanReward": 0.0,
        "passAtK": {"1": 0.0, "2": 0.0}, "passHatK": {"1": 0.0, "2": 0.0}, "tasksAtK": {"1": 1, "2": 1},
        "interval": workspace.run(run_id)["summary"]["interval"], "tasks": [],
    }  # fmt: skip
    for row in workspace.attempts(run_id):
        assert (row["status"], row["reward"], row["failure_category"]) == ("failed", 0.0, "agent_error")
        assert "about to fail" in json.loads(workspace.artifact(row["trajectory_artifact_id"]))["log"]


def test_an_environment_that_cannot_run_here_fails_with_its_reason(workspace):
    published = workspace.publish()
    for model, reason in (
        (
            {"engine": "local", "model": "/some/folder"},
            "may not load the model '/some/folder'; it may load tiny, smollm2",
        ),
        ({"upstream": {"baseUrl": "http://127.0.0.1:9/v1", "model": "m"}}, "may not call the hosted model at http"),
        ({"engine": "scripted", "replies": "none.jsonl"}, "the bundle has no file 'none.jsonl'"),
        ({"engine": "scripted", "replies": "../../etc/passwd"}, "must be a path inside the bundle"),
        ({"engine": "teapot"}, "model: Invalid enum value 'teapot'"),
    ):
        run_id = workspace.start(published, model=model)
        workspace.work(run_id)
        run = workspace.run(run_id)
        assert (run["status"], run["job_state"]) == ("failed", "failed")
        assert reason in run["last_error"]
        assert run["summary"]["n"] == 0


def test_a_secret_that_is_missing_is_named(workspace):
    published = workspace.publish(manifest='[secrets]\nrequired = ["API_KEY"]\n')
    run_id = workspace.start(published)
    workspace.work(run_id)
    assert "needs the secrets API_KEY" in workspace.run(run_id)["last_error"]


def test_replies_come_from_the_bundle(workspace):
    agent = HEAD + "answer = say(user('?'))\noutput(1.0 if answer['content'] == 'the bundle speaks' else 0.0)\n"
    published = workspace.publish(agent, replies_dot_jsonl='{"replies": ["the bundle speaks"]}\n')
    run_id = workspace.start(published, model={"engine": "scripted", "replies": "replies.jsonl"})
    workspace.work(run_id)
    assert [row["reward"] for row in workspace.attempts(run_id)] == [1.0, 1.0]


def test_a_bundle_that_was_exchanged_is_not_run(workspace):
    published, other = workspace.publish(), workspace.publish(GOOD + "# other\n")
    run_id = workspace.start(published)
    workspace.admin(
        "UPDATE artifacts a SET body = b.body, sha256 = b.sha256 FROM environment_versions v, environment_versions w,"
        " artifacts b WHERE v.id = %s AND a.id = v.bundle_artifact_id AND w.id = %s AND b.id = w.bundle_artifact_id",
        published[1], other[1],
    )  # fmt: skip
    workspace.work(run_id)
    assert "damaged or exchanged" in workspace.run(run_id)["last_error"]


@pytest.mark.parametrize("mode", ["finish_running", "at_once"])
def test_cancelling_lets_attempts_finish_or_ends_them(workspace, mode):
    gate = workspace.folder / "gate"
    agent = HEAD + f"say(user('x'))\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)\noutput(1.0)\n"
    run_id = workspace.start(workspace.publish(agent), attempt_count=3, concurrency=1)

    async def cancel(worker):
        await workspace.until(run_id, lambda rows: any(row["status"] == "running" for row in rows))
        async with workspace.app.scope(workspace.scope) as tx:
            await evaluations.cancel_run(tx, run_id, mode, summarise)
        if mode == "finish_running":
            gate.touch()

    workspace.work(run_id, meanwhile=cancel)
    run, rows = workspace.run(run_id), workspace.attempts(run_id)
    assert (run["status"], run["job_state"]) == ("cancelled", "cancelled")
    first = ("completed", 1.0, None) if mode == "finish_running" else ("failed", None, "cancelled")
    found = [(row["status"], row["reward"], row["failure_category"]) for row in rows]
    assert found == [first, ("failed", None, "cancelled"), ("failed", None, "cancelled")]
    assert run["summary"]["n"] == (1 if mode == "finish_running" else 0)
    if mode == "at_once":
        assert rows[0]["trajectory_artifact_id"] is not None, "what it had done until then is kept"


def test_cancelling_at_once_does_not_wait_for_an_evaluator(workspace):
    manifest = f'[evaluator]\ncommand = "{sys.executable} -S -E evaluator/check.py"\n'
    check = "import time\ntime.sleep(50)\n"
    published = workspace.publish(GOOD, manifest, evaluator__check_dot_py=check)
    run_id = workspace.start(published, attempt_count=1)
    waited = []

    async def cancel(worker):
        await workspace.until(run_id, lambda rows: any(row["phase"] == "evaluator" for row in rows))
        async with workspace.app.scope(workspace.scope) as tx:
            await evaluations.cancel_run(tx, run_id, "at_once", summarise)
        waited.append(time.monotonic())

    workspace.work(run_id, meanwhile=cancel)
    assert time.monotonic() - waited[0] < 30
    (row,) = workspace.attempts(run_id)
    assert (workspace.run(run_id)["status"], row["reward"], row["failure_category"]) == ("cancelled", None, "cancelled")


def test_a_worker_that_stops_finishes_what_runs_and_gives_the_job_back(workspace):
    gate = workspace.folder / "gate"
    agent = HEAD + f"say(user('x'))\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)\noutput(1.0)\n"
    run_id = workspace.start(workspace.publish(agent), attempt_count=2, concurrency=1)

    async def stop(worker):
        await workspace.until(run_id, lambda rows: any(row["status"] == "running" for row in rows))
        worker.stop()
        gate.touch()

    workspace.work(run_id, meanwhile=stop)
    run = workspace.run(run_id)
    assert (run["status"], run["job_state"], run["job_attempt"]) == ("queued", "queued", 0)
    assert [row["status"] for row in workspace.attempts(run_id)] == ["completed", "created"]
    workspace.work(run_id)
    assert workspace.run(run_id)["status"] == "succeeded"
    assert [row["retry_index"] for row in workspace.attempts(run_id)] == [0, 0]


def test_a_worker_that_stops_at_once_loses_its_attempts_and_says_so(workspace):
    agent = HEAD + "say(user('x'))\ntime.sleep(60)\n"
    run_id = workspace.start(workspace.publish(agent), attempt_count=1)

    async def stop(worker):
        await workspace.until(run_id, lambda rows: any(row["status"] == "running" for row in rows))
        worker.stop()
        worker.stop()

    workspace.work(run_id, meanwhile=stop)
    lost, again = workspace.attempts(run_id)
    assert (lost["status"], lost["reward"], lost["failure_category"]) == ("failed", None, "worker_lost")
    assert (again["status"], again["retry_of_id"]) == ("created", lost["id"])
    assert workspace.run(run_id)["job_state"] == "queued"


def test_a_job_that_never_ends_is_closed_after_its_attempts(workspace):
    run_id = workspace.start(workspace.publish())
    workspace.admin("UPDATE jobs SET attempt = 3, last_error = 'the engine did not start'")
    workspace.work(run_id)
    run = workspace.run(run_id)
    assert (run["status"], run["job_state"]) == ("failed", "failed")
    assert "begun 3 times without coming to an end; the last time: the engine did not start" in run["last_error"]


def test_a_job_that_fails_on_this_machine_says_why_wherever_one_looks(workspace, monkeypatch):
    async def broken(*_):
        raise EngineError("the engine ran out of memory")

    monkeypatch.setattr(EngineShelf, "take", broken)
    monkeypatch.setattr("relaxforge.runs.evaluation_job.RETRY_DELAY_S", 0.0)
    run_id = workspace.start(workspace.publish())
    workspace.admin("UPDATE jobs SET max_attempts = 2")
    workspace.work(run_id)
    run = workspace.run(run_id)
    assert (run["status"], run["job_attempt"]) == ("failed", 3)
    assert run["error"] == run["last_error"]
    assert "begun 2 times without coming to an end; the last time: the engine ran out of memory" in run["error"]


def test_an_engine_that_dies_under_an_attempt_is_named_in_it(workspace, monkeypatch):
    async def dying(self):
        await asyncio.sleep(0.5)
        return EngineError("the engine was killed")

    monkeypatch.setattr(ScriptedEngine, "lost", dying)
    monkeypatch.setattr("relaxforge.runs.evaluation_job.RETRY_DELAY_S", 0.0)
    run_id = workspace.start(workspace.publish(HEAD + "say(user('x'))\ntime.sleep(60)\n"), attempt_count=1)
    workspace.admin("UPDATE jobs SET max_attempts = 1")
    workspace.work(run_id)
    rows = workspace.attempts(run_id)
    assert [row["failure_category"] for row in rows] == ["worker_lost", "worker_lost"]
    assert rows[0]["failure_message"] == "the worker was lost: the engine was killed"
    assert "the last time: the engine was killed" in rows[1]["failure_message"]
    assert workspace.admin("SELECT count(*) FROM rollouts") == [(2,)], "no attempt disappears"


def test_two_workers_of_one_process_share_the_queue(workspace):
    published = workspace.publish()
    run_ids = [workspace.start(published) for _ in range(4)]

    async def second(worker):
        other = workspace.worker()
        working = asyncio.create_task(other.run())
        for run_id in run_ids:
            await workspace.until(run_id, lambda rows: rows and all(row["ended_at"] for row in rows))
        other.stop()
        await working

    workspace.work(*run_ids, meanwhile=second)
    rows = [row for run_id in run_ids for row in workspace.attempts(run_id)]
    assert [row["reward"] for row in rows] == [1.0] * 8
    assert {row["retry_index"] for row in rows} == {0}


def test_an_attempt_keeps_within_its_budget_and_says_what_it_does(workspace):
    agent = HEAD + "say(user('x'))\ntime.sleep(60)\n"
    run_id = workspace.start(workspace.publish(agent), attempt_count=1, budget={"timeoutS": 2})

    async def watch(worker):
        await workspace.until(run_id, lambda rows: any(row["phase"] == "agent" for row in rows))

    workspace.work(run_id, meanwhile=watch)
    (row,) = workspace.attempts(run_id)
    assert (row["status"], row["reward"], row["failure_category"]) == ("failed", 0.0, "agent_timeout")
    assert "after 2 active seconds" in row["failure_message"]
    assert row["phase"] is None


def test_a_clock_that_jumps_by_years_changes_nothing(workspace, monkeypatch):
    now, jumps = time.time, itertools.cycle((0, 1e9, -1e9))
    agent = HEAD + "say(user('x'))\ntime.sleep(4)\noutput(1.0)\n"
    run_id = workspace.start(workspace.publish(agent), attempt_count=2, concurrency=2)
    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))
    workspace.work(run_id, worker=workspace.worker(lease=3.0))
    monkeypatch.undo()
    rows = workspace.attempts(run_id)
    assert [(row["status"], row["reward"], row["retry_index"]) for row in rows] == [("completed", 1.0, 0)] * 2
    assert workspace.run(run_id)["job_attempt"] == 1
    assert all(4 < row["duration_s"] < 60 for row in rows)
    assert all(row["started_at"] < row["ended_at"] for row in rows)


def test_a_model_that_was_loaded_serves_the_next_job(workspace, tmp_path):
    shelf = EngineShelf(WorkerConfig(), EngineConfig(), RenderConfig(), tmp_path / "engine.log")

    def given(**model):
        return Assignment(None, (), read_model(model), read_budget({}), {})

    async def jobs():
        first = await shelf.take(given(engine="local"), tmp_path)
        await shelf.put_back(first, sound=True)
        scripted = await shelf.take(given(engine="scripted"), tmp_path)
        await shelf.put_back(scripted, sound=True)
        second = await shelf.take(given(engine="local", temperature=0), tmp_path)
        assert second is first
        assert (await second.engine.capacity()).running == 0
        await shelf.put_back(second, sound=False)
        with pytest.raises(EngineError):
            await second.engine.capacity()

    workspace.run_async(jobs())


def test_a_worker_for_many_organizations_needs_walls(workspace, two_organizations):
    for organizations in ((), (two_organizations.a.organization_id, two_organizations.b.organization_id)):
        with pytest.raises(ConfigError, match="it needs --agent-sandbox bwrap"):
            Worker(
                workspace.urls["worker"], WorkerConfig(), workspace.worker()._agents, None, organizations=organizations
            )


@pytest.mark.parametrize("login", ["admin", "app"])
def test_a_login_that_sees_too_much_is_refused(workspace, login):
    workspace.urls = {**workspace.urls, "worker": workspace.urls[login]}
    with pytest.raises(ConfigError, match="relaxforge_worker"):
        workspace.run_async(workspace.worker().run())


@pytest.mark.parametrize(("setting", "value"), [("concurrency", 0), ("lease", 1.0), ("poll", 0.0), ("grace", -1.0)])
def test_settings_of_a_worker_have_limits(setting, value):
    with pytest.raises(ConfigError, match=f"--{setting} must be between"):
        WorkerConfig(**{setting: value})
