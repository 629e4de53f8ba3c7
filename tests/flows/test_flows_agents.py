"""Agents that work: what is recorded of them, and what would be trained."""

from pathlib import Path

import pytest


def balanced(line):
    tokens = line["tokens"]
    return tokens["sampled"] == tokens["trained"] + sum(tokens["masked"].values()) + tokens["undelivered"]


def test_a_single_turn_becomes_one_sample_per_session(flow):
    run = flow("single_turn", rules=[{"replies": ["a", "bbb"], "cycle": True}], n_samples_per_prompt=2)
    assert run.code == 0, run.err
    lines = run.lines()
    assert [line["status"] for line in lines] == ["completed", "completed"]
    assert all(balanced(line) and line["tokens"]["trained"] == line["tokens"]["sampled"] for line in lines)
    for line in lines:
        (sample,) = line["samples"]
        assert sample["response_length"] == len(sample["loss_mask"]) == len(sample["logprobs"])
        assert sum(sample["loss_mask"]) == line["tokens"]["trained"]
        assert len(sample["tokens"]) == sample["prompt_length"] + sample["response_length"]
        assert line["metadata"]["note"] == "kept"
    assert "AGENTIC ROLLOUT event=accounting_end rollout=0 " in run.out


def test_the_minimal_agent_of_the_guide_keeps_one_linear_history(flow):
    run = flow("minimal_openai", rules=[{"replies": ["Lisbon. ", "Still Lisbon."]}])
    assert run.code == 0, run.err
    (line,) = run.lines()
    assert line["turns"] == 2
    (sample,) = line["samples"]
    assert sample["turns"] == 2
    assert line["requests"][1]["new_messages"] == 1
    assert line["metadata"] == {"task_success": 1.0, "model": "model"}


def test_a_tool_loop_is_one_context_with_tool_results_masked(flow):
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": %d}}\n</tool_call>'
    run = flow(
        "tool_loop",
        rules=[{"replies": [call % 1, call % 3, "It is 5"]}],
        agentic_tool_call_parser="qwen",
    )
    assert run.code == 0, run.err
    (line,) = run.lines()
    assert line["metadata"] == {"calls": 2}
    assert line["reward"] == 1.0
    (sample,) = line["samples"]
    assert sample["turns"] == 3
    assert 0 in sample["loss_mask"]
    assert line["tokens"]["trained"] == line["tokens"]["sampled"]


def test_parallel_branches_train_the_exported_context_and_account_for_the_other(flow):
    run = flow("parallel_branches", rules=[{"replies": ["one", "two", "three", "four", "five"]}])
    assert run.code == 0, run.err
    (line,) = run.lines()
    assert [sample["name"] for sample in line["samples"]] == ["main"]
    assert line["samples"][0]["turns"] == 3
    assert line["tokens"]["masked"]["not_exported"] > 0
    assert balanced(line)


def test_equal_bodies_are_sampled_again_and_the_exported_branch_is_trained(flow):
    replies = ["a", "bb", "ccc", "dd", "because"]
    run = flow("best_of_n", rules=[{"replies": replies}])
    assert run.code == 0, run.err
    (line,) = run.lines()
    answers = [state for state in line["forest"] if state["kind"] == "response"]
    assert len(answers) == 5
    assert line["reward"] == 4.0
    assert line["samples"][0]["turns"] == 2
    assert balanced(line)


def test_a_retry_after_a_client_timeout_gets_the_first_answer_and_the_history_stays_linear(flow):
    run = flow("impatient", rules=[{"replies": ["slow"], "delay_s": 1.0}, {"replies": ["more"]}])
    assert run.code == 0, run.err
    (line,) = run.lines()
    assert line["turns"] == 2
    first, retry, _ = line["requests"]
    assert retry["retry_of"] == first["request_id"]
    assert len(line["samples"]) == 1


def test_the_agent_sees_the_contract_and_nothing_of_ours(flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_OF_THE_TRAINER", "hush")
    run = flow("single_turn", agent_env=("FOO=bar", "PYTHONUNBUFFERED=1"), keep_session_dirs="all")
    assert run.code == 0, run.err
    (folder,) = (run.run_dir / "sessions").iterdir()
    assert {path.name for path in folder.iterdir()} == {"session_input.json", "session_output.json", "run.log"}
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in run.run_dir.rglob("*"):
        if path.is_file():
            assert b"hush" not in path.read_bytes()


def test_tasks_wrap_around_and_steps_go_on(flow):
    run = flow(
        "single_turn",
        tasks=[{"input": "one"}, {"input": "two"}],
        rules=[{"replies": ["a", "bb"], "cycle": True}],
        num_rollout=3,
    )
    assert run.code == 0, run.err
    assert [run.lines(str(step))[0]["task_index"] for step in range(3)] == [0, 1, 0]
    assert [row["rollout_id"] for row in run.metrics()] == [0, 1, 2]


def test_an_evaluation_counts_every_attempt(flow, tmp_path: Path):
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text(
        '{"input": "x", "metadata": {"how": "behave"}}\n{"input": "y", "metadata": {"how": "exit_3"}}\n'
    )
    run = flow(
        "misbehave",
        tasks=[{"input": "t", "metadata": {"how": "none", "only": "-99"}}],
        eval_prompt_data=("held", str(held_out)),
        eval_interval=1,
        n_samples_per_eval_prompt=2,
    )
    assert run.code == 0, run.err
    rows = [row for row in run.metrics() if row["kind"] == "eval"]
    assert [row["rollout_id"] for row in rows] == [0, 1]
    assert rows[0]["eval/held/attempted"] == 4
    assert rows[0]["eval/held/failures/agent_error"] == 2


def test_rollout_takes_several_contexts_inner_states_too_and_accounts_for_the_rest(flow):
    run = flow("two_contexts", rules=[{"replies": ["found", "yes", "quite sure"]}])
    assert run.code == 0, run.err
    (line,) = run.lines()
    assert [(sample["name"], sample["turns"], sample["reward"]) for sample in line["samples"]] == [
        ("searcher", 1, None),
        ("main", 1, 1.0),
    ]
    assert [sample["metadata"] for sample in line["samples"]] == [{"useful": 0.5}, {"outcome": 1}]
    assert line["reward"] == 1.0
    assert line["tokens"]["masked"] == {"not_exported": len(line["forest"][-1]["tokens"])}
    assert balanced(line)


@pytest.mark.slow
def test_training_takes_one_context_and_says_so(flow):
    run = flow(
        "two_contexts",
        rules=[{"replies": ["found", "yes", "quite sure"]}],
        command="train",
        max_consecutive_failed_groups=1,
    )
    assert run.code == 3, run.err
    (line,) = run.lines()
    assert line["failure"]["category"] == "bad_output"
    assert "'searcher', 'main'" in line["failure"]["message"]
