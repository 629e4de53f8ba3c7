"""A world that does not wish us well: consoles that go away, full and missing places, agents that break their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

AGENTS = Path(__file__).parent / "agents"


def words(folder: Path, agent: str, *flags: str) -> list[str]:
    """A rollout of three steps over one Task in ``folder``; ``wait_for_file`` waits for ``go-on`` in there."""
    (folder / "tasks.jsonl").write_text(json.dumps({"input": "a", "metadata": {"hold": str(folder / "go-on")}}) + "\n")
    return [
        sys.executable, "-m", "relaxforge.cli.main", "rollout", "--model", "tiny", "--engine", "scripted",
        "--prompt-data", str(folder / "tasks.jsonl"), "--agent-cwd", str(AGENTS),
        "--agent-command", f"exec {sys.executable} {agent}.py", "--run-dir", str(folder / "run"),
        "--rollout-batch-size", "1", "--n-samples-per-prompt", "1", "--num-rollout", "3", "--agent-kill-grace", "0.2",
        *flags,
    ]  # fmt: skip


def steps(folder: Path) -> list[int]:
    return [json.loads(line)["rollout_id"] for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("console", ["| head -1", ">/dev/full 2>&1", "<&- >&- 2>&-"])
def test_a_run_outlives_its_console(tmp_path: Path, console: str):
    line = f'"$@" {console}; exit ${{PIPESTATUS[0]}}'
    narrow = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "1"}
    ran = subprocess.run(
        ["bash", "-c", line, "bash", *words(tmp_path, "single_turn")], env=narrow, capture_output=True, check=False
    )
    assert ran.returncode == (1 if "full" in console else 0), ran.stderr
    assert b"Traceback" not in ran.stderr
    assert b"bug" not in ran.stderr
    assert steps(tmp_path) == [0, 1, 2]


def test_a_closed_terminal_stops_a_run_in_order(tmp_path: Path):
    with (tmp_path / "out.log").open("wb") as out:
        process = subprocess.Popen(words(tmp_path, "wait_for_file"), stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("agent-*")):  # another process: there is no event to wait on
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGHUP)
        while b"interrupt again" not in (tmp_path / "out.log").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (tmp_path / "go-on").touch()
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    assert steps(tmp_path) == [0]


def test_a_place_that_takes_no_checkpoint_is_found_before_a_step(flow, tmp_path: Path):
    (tmp_path / "file").write_text("")
    run = flow("single_turn", command="train", save=tmp_path / "file" / "below")
    assert run.code == 2
    assert f"--save {tmp_path / 'file' / 'below'}: checkpoints cannot be written there: Not a directory" in run.err
    assert run.lines() == []


def test_the_checkpoints_of_an_earlier_run_are_not_replaced_by_a_new_one(flow, tmp_path: Path):
    earlier = tmp_path / "run" / "checkpoints" / "step_100"
    earlier.mkdir(parents=True)
    state = {"next_rollout": 100, "position": {}, "next_group": 0, "weight_version": 0}
    (earlier / "run_state.json").write_text(json.dumps(state))
    run = flow("single_turn", command="train")
    assert run.code == 2
    assert f"{earlier} is the checkpoint of an earlier run" in run.err
    assert "--resume latest" in run.err
    assert earlier.exists()


@pytest.mark.parametrize(
    ("deed", "code", "status"),
    [
        ('rm -r "$RELAX_SESSION_IO_DIR"', 3, "failed"),
        ('rm -r "$RELAX_SESSION_IO_DIR/.."', 3, "failed"),
        ('cd "$RELAX_SESSION_IO_DIR"; rm run.log; mkfifo run.log', 0, "completed"),
        ('cd "$RELAX_SESSION_IO_DIR"; rm session_output.json; mkfifo session_output.json', 3, "failed"),
        ('chmod 0 "$RELAX_OUTPUT_JSON" "$RELAX_SESSION_IO_DIR"; exit 3', 3, "failed"),
        ('ln -sf /dev/zero "$RELAX_OUTPUT_JSON"', 3, "failed"),
    ],
)
def test_an_agent_that_breaks_its_own_folder_costs_its_session_at_most(flow, deed: str, code: int, status: str):
    run = flow(f"{sys.executable} {AGENTS / 'single_turn.py'} && {{ {deed}; }}", max_consecutive_failed_groups=1)
    assert run.code == code, run.err
    (line,) = run.lines()
    assert line["status"] == status
    if status == "failed":
        assert line["failure"]["message"].partition("\n")[0] in run.err
