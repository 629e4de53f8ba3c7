"""Agents that fail: each gets its category, keeps its evidence, and costs nobody else anything."""

import time
from pathlib import Path

import psutil
import pytest

CATEGORIES = {
    "silent": "no_request",
    "exit_3": "agent_error",
    "wrong_key": "agent_error",
    "half_output": "bad_output",
    "reward_nan": "bad_output",
    "reward_text": "bad_output",
    "no_reward": "bad_output",
    "wrong_export": "export_mismatch",
}


@pytest.mark.parametrize(("how", "category"), CATEGORIES.items())
def test_a_failed_session_is_a_record_with_its_category(flow, how: str, category: str):
    run = flow("misbehave", tasks=[{"input": "t", "metadata": {"how": how}}], max_consecutive_failed_groups=1)
    assert run.code == 3, run.err
    assert category in run.err
    (line,) = run.lines()
    assert line["status"] == "failed"
    assert line["failure"]["category"] == category
    assert line["session_id"] in line["failure"]["message"]
    tokens = line["tokens"]
    assert tokens["trained"] == 0
    assert tokens["sampled"] == sum(tokens["masked"].values()) + tokens["undelivered"]
    folder = run.run_dir / "sessions" / line["session_id"]
    assert (folder / "run.log").exists()


def test_a_context_that_is_too_long_is_refused_by_name(flow):
    run = flow(
        "misbehave",
        tasks=[{"input": "t", "metadata": {"how": "too_long"}}],
        rollout_max_context_len=512,
        max_consecutive_failed_groups=1,
    )
    (line,) = run.lines()
    assert "context_length_exceeded" in line["failure"]["log_tail"]
    assert [request["http_status"] for request in line["requests"]] == [200, 400]


def test_one_crash_drops_its_group_and_a_replacement_fills_the_step(flow):
    tasks = [
        {"input": "t", "metadata": {"how": "exit_3", "only": "-01"}},
        {"input": "t", "metadata": {"how": "none", "only": "-99"}},
    ]
    run = flow("misbehave", tasks=tasks, n_samples_per_prompt=2)
    assert run.code == 0, run.err
    by_status: dict[str, list[str]] = {}
    for line in run.lines():
        by_status.setdefault(line["status"], []).append(line["group_id"])
    assert by_status["failed"] == ["train-g000000"]
    assert by_status["dropped"] == ["train-g000000"]
    assert by_status["completed"] == ["train-g000001"] * 2


def test_an_agent_that_hangs_before_its_first_request_hits_the_start_up_timeout(flow):
    run = flow(
        "misbehave",
        tasks=[{"input": "t", "metadata": {"how": "hang_before"}}],
        agent_startup_timeout=1.0,
        max_consecutive_failed_groups=1,
    )
    assert run.code == 3, run.err
    assert run.lines()[0]["failure"]["category"] == "startup_timeout"


def test_an_agent_that_hangs_later_hits_the_active_timeout(flow):
    run = flow(
        "misbehave",
        tasks=[{"input": "t", "metadata": {"how": "hang_after"}}],
        agent_timeout=1.0,
        max_consecutive_failed_groups=1,
    )
    assert run.code == 3, run.err
    assert run.lines()[0]["failure"]["category"] == "agent_timeout"
    assert run.lines()[0]["tokens"]["masked"]["session_failed"] > 0


def test_a_child_that_left_the_process_group_and_ignores_sigterm_does_not_survive(flow):
    run = flow("misbehave", tasks=[{"input": "t", "metadata": {"how": "orphan"}}])
    assert run.code == 0, run.err
    (line,) = run.lines()
    assert not psutil.pid_exists(line["metadata"]["child"])


def test_200_mb_of_output_cost_neither_memory_nor_the_tail(flow):
    before = psutil.Process().memory_info().rss
    run = flow("misbehave", tasks=[{"input": "t", "metadata": {"how": "loud"}}], max_consecutive_failed_groups=1)
    (line,) = run.lines()
    assert line["failure"]["log_tail"].endswith("x")
    assert len(line["failure"]["log_tail"]) <= 8 * 1024
    assert psutil.Process().memory_info().rss - before < 100e6
    (run.run_dir / "sessions" / line["session_id"] / "run.log").unlink()


def test_an_engine_that_fails_is_our_fault_not_the_agents(flow):
    run = flow("single_turn", rules=[{"error": "the card fell off the bus"}], max_consecutive_failed_groups=1)
    assert run.code == 3, run.err
    (line,) = run.lines()
    assert line["failure"]["category"] == "provider_error"
    assert "the card fell off the bus" in line["failure"]["message"]


def test_a_reward_function_that_raises_is_a_record(flow, tmp_path: Path):
    (tmp_path / "judge.py").write_text("def judge(session):\n    raise RuntimeError('no idea')\n")
    run = flow(
        "misbehave",
        tasks=[{"input": "t", "metadata": {"how": "no_reward"}}],
        custom_rm_path=f"{tmp_path / 'judge.py'}:judge",
        max_consecutive_failed_groups=1,
    )
    assert run.code == 3, run.err
    assert run.lines()[0]["failure"]["category"] == "verifier_error"
    assert "no idea" in run.lines()[0]["failure"]["message"]


def test_a_slow_group_is_surplus_once_the_step_is_full_and_its_task_comes_back(flow):
    tasks = [
        {"input": "t", "metadata": {"how": "hang_after"}},
        {"input": "t", "metadata": {"how": "none", "only": "-99"}},
    ]
    started = time.monotonic()
    run = flow("misbehave", tasks=tasks, over_sampling_batch_size=2)
    assert run.code == 0, run.err
    assert time.monotonic() - started < 60
    statuses = {line["status"]: line for line in run.lines()}
    assert statuses["dropped"]["drop_reason"] == "surplus"
    assert statuses["completed"]["task_index"] == 1
