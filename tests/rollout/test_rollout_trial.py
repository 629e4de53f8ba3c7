"""Trials of an environment version: a workspace and a world for each, and an evaluator that comes when all is over."""

import asyncio
import json
import time
from contextlib import AsyncExitStack

import pytest
from rollout_parts import HeardEngine, new_session, says
from trial_parts import attempts, conduct, environment

from relaxforge.core.errors import BundleError
from relaxforge.core.evidence import Verdict
from relaxforge.core.sessions import Failure, FailureCategory
from relaxforge.environments.bundle import read_bundle
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.trial import settle
from relaxforge.rollout.trial_tasks import tasks_of

WORLD = '\n[world]\ncommand = "exec python -E make.py"\ntimeout_s = 10\n'
MAKE = "import os, pathlib; pathlib.Path(os.environ['RELAX_WORLD_DIR'], 'seed').write_text(os.environ['RELAX_SEED'])"


def the_trial(renderer, tmp_path, **given):
    operator = {key: given.pop(key) for key in ("secrets", "seeds", "keep_session_dirs") if key in given}
    (line,) = attempts(renderer, environment(tmp_path / "env", **given), tmp_path, **operator)
    return line


def test_the_evaluator_is_told_everything_and_its_words_are_kept(renderer, tmp_path):
    line = the_trial(
        renderer, tmp_path,
        agent="""
said = ask("what now?")
open("left.txt", "w").write(said)
open(os.path.join(os.environ["RELAX_WORLD_DIR"], "seed"), "a").write("+")
with open(os.path.join(os.environ["RELAX_SESSION_IO_DIR"], "steps.jsonl"), "w") as steps:
    steps.write('{"tool": "sh", "command": "ls", "observation": "x"}\\nnot json\\n')
json.dump({"metadata": {"note": 1}, "reward": 0.9}, open(os.environ["RELAX_OUTPUT_JSON"], "w"))
os.remove(os.environ["RELAX_INPUT_JSON"])
""",
        check="""
world, work = os.environ["RELAX_WORLD_DIR"], os.environ["RELAX_WORKSPACE_DIR"]
assert open(f"{world}/seed").read() == os.environ["RELAX_SEED"] + "+" == "11+"
assert open(f"{work}/left.txt").read() == "fine"
assert sorted(os.listdir(work)) == ["agent.py", "left.txt", "make.py"], os.listdir(work)
assert given("INPUT")["metadata"] == {"n": 7} and given("LABEL") == "secret answer"
assert given("OUTPUT")["reward"] == 0.9
assert [(s["step"], s["tool"], s["observation"]) for s in given("STEPS")] == [
    (1, "message", "fine"), (2, "sh", "x"), (3, "message", "not json")], given("STEPS")
assert os.environ["API_KEY"] == "abcdefgh-secret"
write(reward=0.15, stage_one=1, stage_two=0.5, failure_category="wrong_item", count=3, reason="text")
""",
        more=WORLD + '[secrets]\nrequired = ["API_KEY"]\n', **{"make.py": MAKE},
        secrets={"API_KEY": "abcdefgh-secret"}, seeds={"seed": 5, "world_seed": 11},
    )  # fmt: skip
    assert line["failure"] is None, line["failure"]["log_tail"]
    assert (line["status"], line["seed"], line["reward"]) == ("completed", 5, 0.15)
    assert line["verdict"] == {
        "reward": 0.15, "reward_status": "scored", "raw_reward": "0.15", "stages": {"stage_one": 1, "stage_two": 0.5},
        "metrics": {"count": 3}, "failure_category": "wrong_item",
    }  # fmt: skip
    assert line["metadata"] == {"note": 1}
    assert line["steps"] == [
        {"tool": "sh", "command": "ls", "observation": "x"},
        {"tool": "message", "command": "", "observation": "not json"},
    ]
    assert set(line["duration_s"]) >= {"world", "active", "reward"}
    assert list((tmp_path / "run" / "sessions").iterdir()) == []


def test_the_agent_sees_neither_evaluator_nor_labels_and_has_its_own_seed(renderer, tmp_path):
    folder = environment(
        tmp_path / "env",
        agent="""
found = [os.path.join(folder, name) for folder, _, names in os.walk("..") for name in names]
task = open(os.environ["RELAX_INPUT_JSON"]).read()
ask(json.dumps([sorted(found), "answer" in task, os.environ["RELAX_SEED"], os.environ["KIND"]]))
""",
    )
    manifest = (folder / "environment.toml").read_text()
    head, tail = manifest.split("[[task]]")
    rows = '{"input": "do it", "label": "secret answer"}\n'
    (folder / "tasks.jsonl").write_text(rows)
    (folder / "src").mkdir()
    (folder / "agent.py").rename(folder / "src" / "agent.py")
    (folder / "environment.toml").write_text(
        head + 'cwd = "src"\nenv = ["KIND=test"]\n[tasks]\npath = "tasks.jsonl"\n' + tail.split("[tasks]\n")[1]
    )
    (line,) = attempts(renderer, folder, tmp_path, seeds={"seed": 5, "world_seed": 11})
    assert line["failure"] is None, line["failure"]["log_tail"]
    said = json.loads(line["forest"][0]["message"][0]["content"])
    assert said == [["../src/agent.py"], False, "5", "test"]


def test_two_attempts_have_two_workspaces_and_equal_worlds(renderer, tmp_path):
    folder = environment(
        tmp_path / "env",
        agent="""
assert not os.path.exists("mine"), "another attempt was here"
open("mine", "w").close()
ask(open(os.path.join(os.environ["RELAX_WORLD_DIR"], "seed")).read())
""",
        more=WORLD, **{"make.py": MAKE},
    )  # fmt: skip
    lines = attempts(renderer, folder, tmp_path, count=3, seeds={"world_seed": 4})
    assert [line["failure"] for line in lines] == [None] * 3
    assert {line["forest"][0]["message"][0]["content"] for line in lines} == {"4"}
    assert len({line["seed"] for line in lines}) == 3


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("raise SystemExit(3)", "the evaluator exited with status 3"),
        ("write(reward=1); raise KeyError('boom')", "the evaluator exited with status 1"),
        ("os.kill(os.getpid(), 9)", "the evaluator was killed by signal 9"),
        ("pass", "wrote no file to RELAX_EVALUATION_OUTPUT"),
        ("write(reward=float('nan'))", "NaN is not a JSON number"),
        ("write(reward=True)", "wrote true as 'reward'; write 1"),
        ("write(reward=1, stage_one='yes')", "as 'stage_one'; it must be a number"),
        ("write(reward=0, failure_category='worker_lost')", "the name of a fault of ours"),
        ("os.mkfifo(os.environ['RELAX_EVALUATION_OUTPUT'])", "is not a regular file"),
        ("os.symlink('/etc/hostname', os.environ['RELAX_EVALUATION_OUTPUT'])", "is not a regular file"),
    ],
)
def test_an_evaluator_that_gives_no_verdict_is_our_fault_and_no_score(renderer, tmp_path, check, message):
    line = the_trial(renderer, tmp_path, check="print('last words')\nsys.stdout.flush()\n" + check)
    assert (line["status"], line["failure"]["category"]) == ("failed", "verifier_error")
    assert message in line["failure"]["message"]
    assert "last words" in line["failure"]["log_tail"]
    assert "last words" in line["failure"]["message"]
    assert (line["reward"], line["verdict"]["reward_status"]) == (None, "not_scored")
    assert line["verdict"]["failure_category"] == "verifier_error"


def test_an_evaluator_that_hangs_is_ended_with_all_it_started(renderer, tmp_path):
    hang = "import subprocess, time\nsubprocess.Popen(['sleep', '1000'])\ntime.sleep(1000)"
    folder = environment(tmp_path / "env", check=hang)
    manifest = folder / "environment.toml"
    manifest.write_text(manifest.read_text().replace("timeout_s = 20\nstages", "timeout_s = 0.4\nstages"))
    began = time.monotonic()
    (line,) = attempts(renderer, folder, tmp_path)
    assert time.monotonic() - began < 20
    assert "the evaluator was ended after 0.4 s (evaluator.timeout_s)" in line["failure"]["message"]
    assert line["reward"] is None


def test_a_reward_outside_the_bounds_is_kept_and_is_no_score(renderer, tmp_path):
    line = the_trial(renderer, tmp_path, check="write(reward=1.2, stage_one=1)")
    assert (line["status"], line["failure"], line["reward"]) == ("completed", None, None)
    verdict = line["verdict"]
    assert (verdict["reward_status"], verdict["raw_reward"], verdict["stages"]) == (
        "out_of_range", "1.2", {"stage_one": 1}
    )  # fmt: skip
    assert verdict["failure_category"] is None


@pytest.mark.parametrize(("reward", "category"), [(0, "wrong_result"), (0.5, "partial"), (1, None)])
def test_without_a_word_of_the_evaluator_the_reward_says_the_category(renderer, tmp_path, reward, category):
    line = the_trial(renderer, tmp_path, check=f"write(reward={reward})")
    assert (line["status"], line["failure"]) == ("completed", None)
    assert line["verdict"]["failure_category"] == category


@pytest.mark.parametrize(
    ("agent", "category"),
    [
        ("ask('x'); raise SystemExit(4)", "agent_error"),
        ("pass", "no_request"),
        ("ask('x'); open(os.environ['RELAX_OUTPUT_JSON'], 'w').write('{')", "bad_output"),
    ],
)
def test_an_agent_that_failed_is_judged_all_the_same(renderer, tmp_path, agent, category):
    line = the_trial(renderer, tmp_path, agent="open('part', 'w').close()\n" + agent, check="""
write(reward=0.25 if os.path.exists(os.environ["RELAX_WORKSPACE_DIR"] + "/part") else 0, stage_one=1)
""")  # fmt: skip
    assert (line["status"], line["failure"]["category"]) == ("failed", category)
    assert (line["reward"], line["verdict"]["stages"]) == (0.25, {"stage_one": 1})
    assert line["verdict"]["failure_category"] == category


def test_an_agent_out_of_time_is_judged_when_nothing_of_it_runs_any_more(renderer, tmp_path):
    folder = environment(
        tmp_path / "env",
        agent="""
import subprocess, sys
ask("x")
writer = "import itertools\\nfor n in itertools.count(): open('alive', 'w').write(str(n))"
subprocess.Popen([sys.executable, "-c", writer], start_new_session=True).wait()
""",
        check="""
import time
seen = open(os.environ["RELAX_WORKSPACE_DIR"] + "/alive").read()
time.sleep(0.3)
write(reward=float(seen == open(os.environ["RELAX_WORKSPACE_DIR"] + "/alive").read()), failure_category="late")
""",
    )
    manifest = folder / "environment.toml"
    manifest.write_text(manifest.read_text().replace("timeout_s = 20\n[[task]]", "timeout_s = 0.7\n[[task]]"))
    (line,) = attempts(renderer, folder, tmp_path)
    assert line["failure"]["category"] == "agent_timeout"
    assert (line["reward"], line["verdict"]["failure_category"]) == (1.0, "late")


def test_a_failed_agent_without_a_verdict_scores_nothing_and_keeps_its_own_reason(renderer, tmp_path):
    line = the_trial(renderer, tmp_path, agent="ask('x'); raise SystemExit(4)", check="raise SystemExit(1)")
    assert line["failure"]["category"] == "agent_error"
    assert (line["reward"], line["verdict"]["reward_status"]) == (0.0, "scored")
    assert line["verdict"]["failure_category"] == "agent_error"


def test_a_conversation_that_is_not_one_line_is_no_failure_of_a_judged_attempt(renderer, tmp_path):
    line = the_trial(renderer, tmp_path, agent="ask('one'); ask('two')")
    assert (line["status"], line["failure"], line["reward"], line["samples"]) == ("completed", None, 1.0, [])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ("raise SystemExit('the market is closed')", "the world command exited with status 1"),
        ("import time; time.sleep(1000)", r"the world command was ended after 0.5 s (world.timeout_s)"),
    ],
)
def test_a_world_that_cannot_be_made_is_our_fault_and_no_agent_starts(renderer, tmp_path, make, message):
    more = WORLD.replace("timeout_s = 10", "timeout_s = 0.5")
    code = f"import os\nprint(os.environ['API_KEY'], flush=True)\n{make}"
    line = the_trial(
        renderer, tmp_path, more=more, secrets={"API_KEY": "abcdefgh-secret"}, **{"make.py": code}
    )  # fmt: skip
    assert (line["failure"]["category"], line["reward"], line["verdict"]) == ("env_setup", None, None)
    assert message in line["failure"]["message"]
    assert "***" in line["failure"]["log_tail"]
    assert "abcdefgh" not in json.dumps(line)
    assert line["turns"] == 0


def test_a_run_that_is_stopped_does_not_wait_for_a_world(renderer, tmp_path):
    make = f"import pathlib, time; pathlib.Path({str(tmp_path / 'begun')!r}).touch(); time.sleep(1000)"
    folder = environment(tmp_path / "env", more=WORLD.replace("= 10", "= 1000"), **{"make.py": make})

    async def go():
        async with AsyncExitStack() as stack:
            work = asyncio.create_task(conduct(stack, renderer, folder, tmp_path, 1, 1, {}, {}, {}))
            while not (tmp_path / "begun").exists():  # noqa: ASYNC110  (another process: there is no event)
                await asyncio.sleep(0.01)
            work.cancel()
            await asyncio.wait([work], timeout=20)
            assert work.cancelled()

    asyncio.run(go())
    assert list((tmp_path / "run" / "sessions").iterdir()) == []


@pytest.mark.parametrize(
    ("wrote", "reward", "verdict"),
    [
        ({"reward": 0.5}, 0.5, ("scored", "partial")),
        ({"reward": 3}, None, ("out_of_range", None)),
        ({}, 0.0, ("scored", "bad_output")),
    ],
)
def test_without_an_evaluator_the_agents_own_reward_counts(renderer, tmp_path, wrote, reward, verdict):
    agent = f"ask('x'); open(os.environ['RELAX_OUTPUT_JSON'], 'w').write('{json.dumps(wrote)}')"
    line = the_trial(renderer, tmp_path, agent=agent, check=None)
    assert line["reward"] == reward
    assert (line["verdict"]["reward_status"], line["verdict"]["failure_category"]) == verdict


def test_a_python_evaluator_gets_the_same_things_as_a_command(renderer, tmp_path):
    folder = environment(
        tmp_path / "env", "ask('x'); open('made', 'w').close()", None,
        '[evaluator]\npython = "judge.grade"\nfolder = "secret"\n', **{"secret/judge.py": """
import helper
def grade(trial):
    assert trial.task["metadata"] == {"n": 7} and trial.label == "secret answer" and trial.output == ""
    assert [step["tool"] for step in trial.steps] == ["message"]
    return {"reward": helper.half if (trial.workspace / "made").exists() else 0, "stage_seed": trial.seed}
""", "secret/helper.py": "half = 0.5"},
    )  # fmt: skip
    (line,) = attempts(renderer, folder, tmp_path, seeds={"world_seed": 9})
    assert (line["failure"], line["reward"], line["verdict"]["stages"]) == (None, 0.5, {"stage_seed": 9})


def test_what_was_left_stays_where_folders_are_kept_but_never_the_evaluator(renderer, tmp_path):
    line = the_trial(renderer, tmp_path, agent="ask('x'); open('left', 'w').close()", keep_session_dirs="all")
    kept = tmp_path / "run" / "sessions" / f"{line['session_id']}.trial"
    assert (kept / "workspace" / "left").exists()
    assert not (kept / "evaluator").exists()


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("", "tasks.jsonl has no rows"),
        ("{", "tasks.jsonl:1: not valid JSON"),
        ("[1]", "tasks.jsonl:1: a row must be an object"),
        ('\n{"input": ""}', "tasks.jsonl:2: .*content is empty"),
    ],
)
def test_tasks_that_are_none_name_their_line(tmp_path, row, sentence):
    folder = environment(tmp_path, **{"tasks.jsonl": row})
    agent = 'name = "x"\n[agent]\ncommand = "a"\n[tasks]\npath = "tasks.jsonl"\n'
    (folder / "environment.toml").write_text(agent)
    with pytest.raises(BundleError, match=sentence):
        tasks_of(read_bundle(folder))


@pytest.mark.parametrize(
    ("verdict", "category", "kept"),
    [
        (Verdict(None, "not_scored"), "provider_error", (None, "not_scored", "provider_error")),
        (Verdict(None, "not_scored"), "agent_timeout", (0.0, "scored", "agent_timeout")),
        (Verdict(None, "out_of_range"), "agent_timeout", (None, "out_of_range", "agent_timeout")),
        (Verdict(0.5, "scored", failure_category="late"), "agent_timeout", (0.5, "scored", "late")),
        (Verdict(0.0, "scored"), None, (0.0, "scored", "wrong_result")),
        (Verdict(1.0, "scored"), None, (1.0, "scored", None)),
    ],
)
def test_who_has_the_last_word(renderer, verdict, category, kept):
    outcome = Outcome(new_session(renderer, HeardEngine(renderer, says("a")), mode="eval"))
    if category is not None:
        outcome.fail(Failure(FailureCategory(category), "why"))
    settled = settle(verdict, outcome)
    assert (settled.reward, settled.reward_status, settled.failure_category) == kept
