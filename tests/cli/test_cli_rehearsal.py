"""``relaxforge doctor --session``: an integrator sees matching, drift and topology before training."""

import sys
from pathlib import Path

import pytest

from relaxforge.cli.main import main

AGENT = """
import json, os, urllib.request

def ask(messages):
    request = urllib.request.Request(
        os.environ["RELAX_BASE_URL"] + "/v1/chat/completions",
        json.dumps({"messages": messages}).encode(),
        {"Authorization": "Bearer " + os.environ["RELAX_SESSION_ID"]},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]

messages = [{"role": "user", "content": "one"}]
messages.append(ask(messages))
EDIT
messages.append({"role": "user", "content": "two"})
ask(messages)
with open(os.environ["RELAX_OUTPUT_JSON"], "w") as file:
    json.dump({"reward": 1.0}, file)
"""


@pytest.fixture
def rehearse(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    def run(edit: str = "", *more: str) -> tuple[int, str]:
        (tmp_path / "agent.py").write_text(AGENT.replace("EDIT", edit))
        (tmp_path / "tasks.jsonl").write_text('{"input": "one"}\n')
        flags = ["--model", "tiny", "--prompt-data", str(tmp_path / "tasks.jsonl"), "--agent-cwd", str(tmp_path), *more]
        code = main(["doctor", *flags, "--agent-command", f"exec {sys.executable} agent.py", "--session"])
        return code, capfd.readouterr().out

    return run


def test_a_linear_session_is_called_linear(rehearse):
    code, out = rehearse()
    assert code == 0, out
    assert "history: linear" in out
    assert "+ 0 undelivered" in out


def test_a_filter_that_compares_sessions_does_not_judge_the_only_one(rehearse):
    code, out = rehearse("", "--dynamic-sampling-filter-path", "relaxforge.credit.filters.nonzero_std")
    assert code == 0, out
    assert "completed" in out


def test_a_rewritten_answer_is_shown_with_the_characters_and_the_tokens_it_costs(rehearse):
    code, out = rehearse('messages[1]["content"] = "something else"')
    assert "rewritten" in out
    assert "something else" in out
    assert "sampled tokens lose their signal" in out
    assert "2 conversations that share no start" in out
    assert code == 2, "an implicit export of a broken history fails"


def test_what_a_client_changes_in_an_echo_is_named(rehearse):
    code, out = rehearse('messages[1]["content"] = "  " + messages[1]["content"]')
    assert code == 0, out
    assert "white_space" in out
