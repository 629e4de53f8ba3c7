"""Real clients, unmodified: whole flows in which only the client's own configuration points at us."""

import importlib.util
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
NPM = HERE.parents[1] / ".clients"

_spec = importlib.util.spec_from_file_location("whole_flows", HERE.parent / "flows" / "conftest.py")
_flows = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _flows
_spec.loader.exec_module(_flows)
flow = _flows.flow

CALL = '<tool_call>\n{"name": "add",  "arguments": {"b": 3, "a":2}}\n</tool_call>'
RULES = (
    {"match": "<tool_response>\n5", "replies": ["<think>\nThe tool said so.\n</think>\n\nIt is 5."]},
    {"match": "2 plus 3", "replies": ["<think>\nThe tool can add.\n</think>\n\nI add.\n" + CALL]},
)
OPENAI = "export OPENAI_BASE_URL=$RELAX_BASE_URL OPENAI_API_KEY=$RELAX_SESSION_ID; "
ANTHROPIC = "export ANTHROPIC_BASE_URL=$RELAX_BASE_URL ANTHROPIC_API_KEY=$RELAX_SESSION_ID; "


def python_agent(agent: str, *words: str) -> str:
    return "exec " + shlex.join([sys.executable, str(HERE / "agents" / f"{agent}.py"), *words])


def node_agent(agent: str, *words: str) -> str:
    program = shlex.join(["node", str(HERE / "agents" / f"{agent}.cjs"), *words])
    return f"export NODE_PATH={NPM / 'node_modules'}; exec {program}"


@pytest.fixture(scope="session")
def npm_clients() -> None:
    """Tests of clients from npm run wherever `make clients` went through; there, a client that is missing fails."""
    if not (NPM / "installed").exists():
        pytest.skip("`make clients` installs the clients from npm")


@pytest.fixture
def session(flow) -> Callable[..., dict[str, Any]]:
    """Run one Session and return its dump line, after checking what holds for every client that works.

    One linear conversation of ``turns`` answers, over one API, all of whose sampled tokens would be trained.
    ``refused`` are the errors of requests that the client was told not to send and then did without; requests that
    repeat an earlier one because its client gave up waiting come on top.
    """

    def run(
        command: str, api: str, *, rules=RULES, task="What is 2 plus 3?", turns=2, refused=(), **flags: Any
    ) -> dict[str, Any]:
        settings = {"agentic_tool_call_parser": "qwen", "agentic_reasoning_parser": "think", "keep_session_dirs": "all"}
        done = flow(command, tasks=[{"input": task}], rules=rules, **{**settings, **flags})
        assert done.code == 0, done.err + done.out
        (line,) = done.lines()
        assert line["status"] == "completed", line["failure"]
        assert [request["error"] for request in line["requests"] if request["http_status"] != 200] == list(refused)
        assert {request["api"] for request in line["requests"]} == {api}
        assert sum(request["retry_of"] is None for request in line["requests"]) == turns + len(refused)
        _check_linear(line, turns)
        _check_sample(line, turns)
        return line

    return run


def _check_linear(line: dict[str, Any], turns: int) -> None:
    states = [state["state"] for state in line["forest"]]
    assert [state["parent"] for state in line["forest"]] == [None, *states[:-1]]
    assert [state["kind"] for state in line["forest"]] == ["observation", "response"] * turns
    assert all(state["delivered"] for state in line["forest"] if state["kind"] == "response")
    assert line["drift"] == []
    assert line["render_differences"] == {}


def _check_sample(line: dict[str, Any], turns: int) -> None:
    answers = [state for state in line["forest"] if state["kind"] == "response"]
    sampled = [token for state in answers for token in state["tokens"]]
    (sample,) = line["samples"]
    assert sample["turns"] == turns
    response = sample["tokens"][sample["prompt_length"] :]
    assert [token for token, mask in zip(response, sample["loss_mask"], strict=True) if mask] == sampled
    assert 0 in sample["loss_mask"]
    counts = {"sampled": len(sampled), "trained": len(sampled), "masked": {}, "undelivered": 0, "repeats": 0}
    assert line["tokens"] == counts
    assert line["reward"] == 1.0
