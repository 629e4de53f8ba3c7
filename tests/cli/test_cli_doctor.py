import json
import socket

import pytest

from relaxforge.cli.config import load_config
from relaxforge.cli.doctor import doctor
from relaxforge.cli.init import init


@pytest.fixture
def project(tmp_path, capsys):
    init([str(tmp_path / "project")])
    capsys.readouterr()
    return tmp_path / "project"


@pytest.fixture
def examine(project, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "4000")

    def examine(*flags):
        """Exit code and lines of `relaxforge doctor run.toml FLAGS` with the tiny model and the scripted engine."""
        quick = ["--model", "tiny", "--engine", "scripted"]
        code = doctor(load_config("doctor", [str(project / "run.toml"), *quick, *flags]))
        return code, [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    return examine


def test_a_sound_project_is_ready_to_run(examine, project):
    code, lines = examine()
    assert code == 0
    assert lines[-1] == "ready to run"
    assert f"ok {project}/tasks.jsonl: 8 Tasks" in lines
    assert "ok scripted, with the built-in replies (--scripted-replies gives others)" in lines
    assert any(line.startswith("note generation prompt: <|im_start|>assistant") for line in lines)
    assert not any(line.startswith(("warning", "problem")) for line in lines)


def test_doctor_leaves_nothing_behind(examine, project):
    before = sorted(project.rglob("*"))
    examine()
    assert sorted(project.rglob("*")) == before


def test_every_problem_is_found_at_once(examine, project):
    (project / "tasks.jsonl").write_text('{"question": "no key we know"}\n')
    (project / "rules.jsonl").write_text("not json\n")
    code, lines = examine(
        *("--agent-command", "pyhton3 agent.py", "--custom-rm-path", "no_such_module.reward"),
        *("--scripted-replies", str(project / "rules.jsonl")),
    )
    assert code == 2
    problems = [line for line in lines if line.startswith("problem")]
    assert [any(word in line for line in problems) for word in ("tasks.jsonl:1", "pyhton3", "no_such_module", "rules")]
    assert lines[-1] == "4 problems"


def test_withheld_variables_are_named_without_their_values(examine, monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", "hunter2")
    _, lines = examine()
    said = next(line for line in lines if line.startswith("note agents do not see"))
    assert "MY_API_TOKEN" in said
    assert not any("hunter2" in line for line in lines)
    _, lines = examine("--agent-env", "MY_API_TOKEN")
    assert not any("MY_API_TOKEN" in line for line in lines)


def test_the_capacity_table_is_that_of_the_guide(examine, project):
    (project / "small.jsonl").write_text(json.dumps({"input": "x"}) + "\n")
    _, lines = examine(
        *("--agentic-concurrency", "6", "--n-samples-per-prompt", "5", "--n-samples-per-eval-prompt", "4"),
        *("--eval-prompt-data", "a", str(project / "small.jsonl")),
    )
    assert "note T = 6 Groups x 5 = 30 training Sessions at once" in lines
    assert "note E_a = 8 Groups x 4 = 32 evaluation Sessions at once" in lines
    assert "ok external_slots >= max(T, E_peak) = 32; fewer can block the first requests" in lines


@pytest.mark.parametrize(
    ("flags", "warning"),
    [
        (("--rollout-top-p", "0.9"), "--rollout-top-p below 1"),
        (("--rollout-top-k", "20"), "--rollout-top-k above 0"),
        (("--n-samples-per-prompt", "1"), "a Group of one has nothing to compare"),
        (("--over-sampling-batch-size", "6"), "work beyond --rollout-batch-size is thrown away"),
        (("--eval-interval", "None"), "--eval-prompt-data without --eval-interval"),
        (("--eval-prompt-data",), "--eval-interval without --eval-prompt-data"),
    ],
)
def test_settings_that_are_odd_together_are_a_warning(examine, flags, warning):
    code, lines = examine(*flags)
    assert code == 0
    assert any(line.startswith("warning") and warning in line for line in lines)


def test_a_filter_that_cannot_be_imported_is_a_problem(examine):
    code, lines = examine("--dynamic-sampling-filter-path", "no_such_module.keep")
    assert code == 2
    assert any(line.startswith("problem --dynamic-sampling-filter-path: no_such_module cannot be") for line in lines)


@pytest.mark.parametrize("flag", ["--run-dir", "--save"])
def test_a_folder_that_cannot_be_written_is_a_problem(examine, project, flag):
    code, lines = examine(flag, str(project / "agent.py" / "below"))
    assert code == 2
    assert f"problem {flag}: {project / 'agent.py'} is not a folder that we may write to" in lines


def test_a_checkpoint_to_go_on_from_is_looked_at(examine, project):
    _, lines = examine("--run-dir", str(project / "run"), "--resume", "latest")
    assert any(line.startswith("problem --resume latest") and "no complete checkpoint" in line for line in lines)
    checkpoint = project / "run/checkpoints/step_2"
    checkpoint.mkdir(parents=True)
    state = {"next_rollout": 2, "position": {"epoch": 0, "index": 4, "size": 8}, "next_group": 4, "weight_version": 2}
    (checkpoint / "run_state.json").write_text(json.dumps(state))
    code, lines = examine("--run-dir", str(project / "run"), "--resume", "latest")
    assert code == 0
    assert f"ok goes on with step 3 from {checkpoint}" in lines
    (project / "tasks.jsonl").write_text('{"input": "another dataset"}\n')
    _, lines = examine("--run-dir", str(project / "run"), "--resume", "latest")
    assert any("resume with the same --prompt-data" in line for line in lines if line.startswith("problem"))


@pytest.mark.parametrize("flag", ["--agentic-bind-port", "--agentic-admin-port"])
def test_a_port_that_is_taken_is_a_problem(examine, flag):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, lines = examine(flag, port)
    assert code == 2
    (problem,) = (line for line in lines if line.startswith("problem"))
    assert f"{flag} {port} cannot be opened on 127.0.0.1: Address already in use; choose another port" in problem
    assert examine(flag, port)[0] == 0


@pytest.mark.parametrize(
    ("host", "words"), [("203.0.113.7", "is not an address of this machine"), ("no.such.host.invalid", "resolved")]
)
def test_an_address_that_is_not_ours_is_a_problem(examine, host, words):
    code, lines = examine("--agentic-bind-host", host)
    assert code == 2
    assert any(line.startswith("problem") and "--agentic-bind-host" in line and words in line for line in lines)


def test_a_decay_without_an_end_is_told_where_it_ends(examine):
    _, lines = examine("--num-rollout", "6", "--lr-decay-style", "cosine")
    assert "note 6 rollout steps" in lines
    assert "note learning rate: cosine to 0 at optimiser step 6" in lines
    code, lines = examine("--num-rollout", "6", "--lr-decay-style", "cosine", "--lr-warmup-iters", "6")
    assert code == 2
    assert any("--lr-warmup-iters 6 leaves nothing of the 6 optimiser steps" in line for line in lines)
