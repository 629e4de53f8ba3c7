"""SIGKILL in the middle of a step: nothing survives that should not, nothing written is lost, resume goes on."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

AGENTS = Path(__file__).parent / "agents"


def until(condition: Callable[[], object], seconds: float = 60.0) -> object:
    """Poll across a process boundary, where there is no event to wait on."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


class Run:
    """``relaxforge train`` or ``rollout`` as a process of its own; Task 1 is held by a file that does not exist."""

    def __init__(self, folder: Path, command: str, *flags: str, engine: str = "scripted") -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.hold = folder / "go-on"
        rows = [{"input": "a", "metadata": {}}, {"input": "b", "metadata": {"hold": str(self.hold)}}]
        (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "replies.jsonl").write_text('{"replies": ["x", "yy"], "cycle": true}\n')
        self.words = [
            sys.executable, "-m", "relaxforge.cli.main", command, "--model", "tiny", "--engine", engine,
            "--prompt-data", str(folder / "tasks.jsonl"),
            "--agent-command", f"exec {sys.executable} {AGENTS / 'wait_for_file.py'}", "--agent-cwd", str(AGENTS),
            "--run-dir", str(self.run_dir), "--rollout-batch-size", "1", "--n-samples-per-prompt", "2",
            "--num-rollout", "3", "--agent-kill-grace", "0.2", *flags,
        ]  # fmt: skip
        if engine == "scripted":
            self.words += ["--scripted-replies", str(folder / "replies.jsonl")]
        self.process = self.start()

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        with (self.folder / "out.log").open("ab") as log:
            return subprocess.Popen([*self.words, *more], stdout=log, stderr=log)

    def held_agents(self) -> list[int]:
        return [int(path.name.removeprefix("agent-")) for path in self.folder.glob("agent-*")]

    def children(self, module: str) -> list[psutil.Process]:
        return [child for child in psutil.Process(self.process.pid).children() if module in " ".join(child.cmdline())]

    def output(self) -> str:
        return (self.folder / "out.log").read_text()


@pytest.fixture
def start(tmp_path: Path):
    runs: list[Run] = []

    def begin(command: str, *flags: str, engine: str = "scripted") -> Run:
        runs.append(Run(tmp_path, command, *flags, engine=engine))
        return runs[0]

    yield begin
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()


def gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)


def test_when_main_is_killed_no_agent_survives_and_written_lines_stay(start):
    run = start("rollout")
    until(lambda: len(run.held_agents()) == 2)
    agents = run.held_agents()
    (spawner,) = run.children("relaxforge.agents.spawner")
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    until(lambda: gone([*agents, spawner.pid]))
    lines = (run.run_dir / "rollouts" / "0.jsonl").read_text().splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["completed", "completed"]


def test_when_the_spawner_is_killed_its_agents_end_and_the_run_goes_on(start):
    run = start("rollout")
    until(lambda: len(run.held_agents()) == 2)
    agents = run.held_agents()
    (spawner,) = run.children("relaxforge.agents.spawner")
    run.hold.touch()
    spawner.send_signal(signal.SIGKILL)
    assert run.process.wait(60) == 0, run.output()
    assert gone(agents)


def test_when_the_engine_is_killed_the_run_fails_at_once_by_name_and_keeps_its_sessions(start):
    run = start("rollout", "--rollout-max-response-len", "8", engine="local")
    until(lambda: len(run.held_agents()) == 2)
    agents = run.held_agents()
    (engine,) = run.children("relaxforge.engine.local.process")
    engine.send_signal(signal.SIGKILL)
    assert run.process.wait(30) == 1, run.output()  # The agents wait for a file that never comes.
    assert gone(agents)
    assert f"engine (pid {engine.pid}) ended with signal 9" in run.output()
    assert str(run.run_dir / "logs" / "engine.log") in run.output()
    assert "--resume latest" in run.output()
    lines = (run.run_dir / "rollouts" / "1.jsonl").read_text().splitlines()
    assert [json.loads(line)["session_id"] for line in lines] == ["train-g000001-00", "train-g000001-01"]


@pytest.mark.slow
def test_when_the_trainer_is_killed_the_run_fails_by_name_and_resumes_from_the_last_checkpoint(start):
    run = start("train", "--save-interval", "1")
    until(lambda: len(run.held_agents()) == 2)
    (trainer,) = run.children("relaxforge.train.process")
    trainer.send_signal(signal.SIGKILL)
    assert run.process.wait(60) == 1, run.output()  # While its agents still wait for a file.
    run.hold.touch()
    assert "trainer" in run.output()
    assert "signal 9" in run.output()
    run.process = run.start("--resume", "latest")
    assert run.process.wait(90) == 0, run.output()
    steps = [json.loads(line) for line in (run.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [(row["rollout_id"], row["incarnation"]) for row in steps] == [(0, 0), (1, 1), (2, 1)]
    assert (run.run_dir / "checkpoints" / "step_3" / "config.json").exists()


@pytest.mark.slow
def test_when_main_is_killed_in_a_step_resume_repeats_that_step_only(start):
    run = start("train", "--save-interval", "1")
    until(lambda: len(run.held_agents()) == 2)
    (trainer,) = run.children("relaxforge.train.process")
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    until(lambda: gone([trainer.pid, *run.held_agents()]))
    run.hold.touch()
    run.process = run.start("--resume", "latest")
    assert run.process.wait(90) == 0, run.output()
    ids = [
        json.loads(line)["session_id"]
        for path in sorted((run.run_dir / "rollouts").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_one_interrupt_finishes_the_step_and_saves(start):
    run = start("train")
    until(lambda: len(run.held_agents()) == 2)
    run.process.send_signal(signal.SIGINT)
    until(lambda: "interrupt again" in run.output())
    run.hold.touch()
    assert run.process.wait(60) == 130
    assert (run.run_dir / "checkpoints" / "step_2" / "run_state.json").exists()


def test_two_interrupts_stop_at_once_and_end_the_agents(start):
    run = start("rollout")
    until(lambda: len(run.held_agents()) == 2)
    agents = run.held_agents()
    run.process.send_signal(signal.SIGINT)
    until(lambda: "interrupt again" in run.output())
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(60) == 130, run.output()
    assert gone(agents)
