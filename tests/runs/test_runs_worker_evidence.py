"""What the worker keeps of attempts, good and bad, through the whole line: agent, evaluator, evidence, database."""

from __future__ import annotations

import json
import sys

import pytest
from worker_parts import GOOD, HEAD, Workspace

from relaxforge.store import evaluations

EVALUATOR = (
    f'[evaluator]\ncommand = "{sys.executable} -S -E evaluator/check.py"\ntimeout_s = 5.0\nstages = ["stage_a"]\n'
)

WRITE = "import json, os\nopen(os.environ['RELAX_EVALUATION_OUTPUT'], 'w').write({text!r})\n"


@pytest.fixture
def workspace(on_loop, app_database, database_urls, two_organizations, tmp_path):
    return Workspace(on_loop, app_database, database_urls, two_organizations.a, tmp_path)


def judged(workspace, check, agent=GOOD, manifest="", **more):
    published = workspace.publish(agent, EVALUATOR + manifest, evaluator__check_dot_py=check, **more)
    run_id = workspace.start(published, attempt_count=1)
    workspace.work(run_id)
    (row,) = workspace.attempts(run_id)
    return row, workspace.run(run_id)


def test_stages_metrics_and_category_are_kept_as_the_evaluator_wrote_them(workspace):
    verdict = {"reward": 0.15, "stage_a": 1, "stage_b": 0, "coins": 2.5, "failure_category": "wrong_result"}
    row, run = judged(workspace, WRITE.format(text=json.dumps(verdict)))
    assert (row["reward"], row["reward_status"], row["raw_reward"]) == (0.15, "scored", "0.15")
    assert (row["stages"], row["metrics"]) == ({"stage_a": 1, "stage_b": 0}, {"coins": 2.5})
    assert row["failure_category"] == "wrong_result"
    assert (run["summary"]["n"], run["summary"]["c"]) == (1, 0)


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ("raise SystemExit(3)", "the evaluator exited with status 3"),
        ("pass", "RELAX_EVALUATION_OUTPUT"),
        (WRITE.format(text="{"), "JSON"),
        (WRITE.format(text='{"reward": NaN}'), "NaN"),
        (WRITE.format(text='{"reward": 1, "stage_a": "yes"}'), "stage_a"),
        ("import time; time.sleep(60)", "ended after 5 s (evaluator.timeout_s)"),
        ("import os; os.kill(os.getpid(), 9)", "killed by signal 9"),
    ],
)
def test_an_evaluator_without_a_verdict_is_our_fault_and_no_zero(workspace, check, words):
    row, run = judged(workspace, check)
    assert (row["status"], row["reward"], row["failure_category"]) == ("failed", None, "verifier_error")
    assert words in row["failure_message"]
    assert (run["status"], run["summary"]["attempted"], run["summary"]["n"]) == ("succeeded", 1, 0)
    assert run["summary"]["passAtK"] == {"1": None}
    assert row["trajectory_artifact_id"] is not None


def test_a_reward_outside_its_range_is_kept_but_not_counted(workspace):
    row, run = judged(workspace, WRITE.format(text='{"reward": 1.2, "stage_a": 1}'))
    assert (row["reward"], row["reward_status"], row["raw_reward"]) == (None, "out_of_range", "1.2")
    assert row["stages"] == {"stage_a": 1}
    assert run["summary"]["n"] == 0


def test_an_evaluator_scores_an_agent_that_failed(workspace):
    row, _ = judged(
        workspace, WRITE.format(text='{"reward": 0.5}'), HEAD + "say(user('x'))\nprint('halfway')\nsys.exit(1)\n"
    )
    assert (row["status"], row["reward"], row["failure_category"]) == ("failed", 0.5, "agent_error")


def test_a_world_that_cannot_be_made_is_our_fault(workspace):
    published = workspace.publish(GOOD, f'[world]\ncommand = "{sys.executable} world.py"\n', world_dot_py="1/0")
    run_id = workspace.start(published, attempt_count=1)
    workspace.work(run_id)
    (row,) = workspace.attempts(run_id)
    assert (row["status"], row["reward"], row["failure_category"]) == ("failed", None, "env_setup")
    assert "ZeroDivisionError" in row["failure_message"]


def test_the_world_follows_its_seed_and_a_new_world_has_the_next_one(workspace):
    world = "import os; open(os.environ['RELAX_WORLD_DIR'] + '/seed', 'w').write(os.environ['RELAX_SEED'])"
    agent = (
        HEAD
        + "seed = open(os.environ['RELAX_WORLD_DIR'] + '/seed').read()\n"
        + "say(user('x'))\nprint('world', seed)\noutput(1)\n"
    )
    published = workspace.publish(agent, f'[world]\ncommand = "{sys.executable} -S -E world.py"\n', world_dot_py=world)
    first = workspace.start(published, attempt_count=1, world_seed=40)
    same = workspace.write(evaluations.reset_run, first, "new_workspace").evaluation_run_id
    new = workspace.write(evaluations.reset_run, first, "new_world").evaluation_run_id
    workspace.work(first, same, new)
    logs = []
    for run_id in (first, same, new):
        (row,) = workspace.attempts(run_id)
        logs.append((json.loads(workspace.artifact(row["trajectory_artifact_id"]))["log"], row["world_seed"]))
    assert logs == [("world 40\n", 40), ("world 40\n", 40), ("world 41\n", 41)]


def test_a_log_of_200_mb_is_cut_and_said_to_be(workspace):
    agent = HEAD + "say(user('x'))\nfor _ in range(200):\n    os.write(1, b'\\xc3\\xa9' * 500_000)\noutput(1)\n"
    run_id = workspace.start(workspace.publish(agent), attempt_count=1)
    workspace.work(run_id)
    (row,) = workspace.attempts(run_id)
    assert (row["reward"], row["log_truncated"]) == (1.0, True)
    body = workspace.artifact(row["trajectory_artifact_id"])
    assert len(body) < 1_000_000
    assert "\ufffd" not in json.loads(body)["log"]


def test_five_thousand_steps_are_all_kept(workspace):
    agent = HEAD + (
        "say(user('x'))\n"
        "with open(os.environ['RELAX_SESSION_IO_DIR'] + '/steps.jsonl', 'w') as file:\n"
        "    for n in range(5000):\n"
        "        file.write(json.dumps({'tool': 'shell', 'command': f'step {n}', 'observation': 'o' * 200}) + '\\n')\n"
        "output(1)\n"
    )
    run_id = workspace.start(workspace.publish(agent), attempt_count=1)
    workspace.work(run_id)
    (row,) = workspace.attempts(run_id)
    steps = json.loads(json.loads(workspace.artifact(row["trajectory_artifact_id"]))["trajectory"])["steps"]
    assert row["step_count"] == len(steps) == 5001
    assert steps[-1] == {"step": 5001, "tool": "shell", "command": "step 4999", "observation": "o" * 200}


def test_whatever_an_agent_says_can_be_stored(workspace):
    nasty = "NUL \\x00, a surrogate \\ud800, \\x1b[31mred\\x1b[0m, <script>alert(1)</script>"
    agent = HEAD + (
        f"text = '{nasty}'\nsay(user(text))\nsys.stdout.buffer.write(b'\\x00\\xff log')\n"
        "with open(os.environ['RELAX_SESSION_IO_DIR'] + '/steps.jsonl', 'w') as file:\n"
        "    file.write(json.dumps({'tool': text, 'command': text, 'observation': text}) + '\\n')\noutput(1)\n"
    )
    run_id = workspace.start(workspace.publish(agent), attempt_count=1)
    workspace.work(run_id)
    (row,) = workspace.attempts(run_id)
    assert (row["status"], row["reward"]) == ("completed", 1.0)
    assert row["sanitised"]
    step = json.loads(json.loads(workspace.artifact(row["trajectory_artifact_id"]))["trajectory"])["steps"][-1]
    assert "<script>alert(1)</script>" in step["observation"]
    assert "\x00" not in step["observation"]
