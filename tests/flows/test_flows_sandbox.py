"""``relaxforge rollout --agent-sandbox bwrap``: the model is reached, nothing else, and nothing survives."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.sandbox import check_sandbox
from relaxforge.cli.main import main
from relaxforge.core.errors import ConfigError

AGENTS = Path(__file__).parent / "agents"


@pytest.fixture(scope="module", autouse=True)
def walls() -> None:
    try:
        check_sandbox(AgentConfig(agent_sandbox="bwrap"), os.environ)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def home(tmp_path):
    """The agent's folder, with the run in the middle of it."""
    for name in ("chat.py", "burglar.py"):
        (tmp_path / "home").mkdir(exist_ok=True)
        shutil.copy(AGENTS / name, tmp_path / "home" / name)
    (tmp_path / "credential").write_text("secret")
    return tmp_path / "home"


def words(home, **metadata):
    run_dir = home / "runs" / "one"
    given = {"run": str(run_dir), "outside": str(home.parent / "credential"), **metadata}
    (home / "tasks.jsonl").write_text(json.dumps({"input": "?", "metadata": given}) + "\n")
    (home / "replies.jsonl").write_text('{"replies": ["hm"], "cycle": true}\n')
    return [
        "rollout", "--model", "tiny", "--engine", "scripted", "--scripted-replies", str(home / "replies.jsonl"),
        "--prompt-data", str(home / "tasks.jsonl"), "--agent-command", f"exec {sys.executable} burglar.py",
        "--agent-cwd", str(home), "--run-dir", str(run_dir), "--rollout-batch-size", "1", "--n-samples-per-prompt", "2",
        "--num-rollout", "1", "--agent-kill-grace", "0.2", "--agent-sandbox", "bwrap",
    ]  # fmt: skip


def test_a_confined_agent_reaches_the_model_and_not_the_run_it_belongs_to(home, capfd):
    assert main(words(home)) == 0
    lines = [json.loads(line) for line in (home / "runs" / "one" / "rollouts" / "0.jsonl").read_text().splitlines()]
    assert [line["status"] for line in lines] == ["completed", "completed"]
    for line in lines:
        found = json.loads(line["forest"][0]["message"][0]["content"])
        own = {"sessions"} if found["run"] else None
        assert (found["outside"], found["home"]) == (False, "/home/agent")
        assert set(found["run"] or ()) == (own or set())


def test_doctor_says_what_is_confined(home, capfd):
    main(["doctor", *words(home)[1:]])
    assert "bubblewrap confines each agent to its folders and the model API" in capfd.readouterr().out


def test_when_main_is_killed_nothing_inside_the_walls_survives(home):
    with (home / "out.log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, "-m", "relaxforge.cli.main", *words(home, wait=True)], stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 60
        while len(list(home.glob("runs/one/sessions/*/waiting"))) < 2:  # another process: no event to wait on
            assert time.monotonic() < deadline, (home / "out.log").read_text()
            time.sleep(0.02)
        inside = [child for child in psutil.Process(run.pid).children(recursive=True) if child.name() != "python"]
        everything = psutil.Process(run.pid).children(recursive=True)
        assert any(child.name() == "bwrap" for child in inside)
        run.send_signal(signal.SIGKILL)
        run.wait()
        _, alive = psutil.wait_procs(everything, timeout=20)
        assert alive == []
    finally:
        run.kill()
        run.wait()
