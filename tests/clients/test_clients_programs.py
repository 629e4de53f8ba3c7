"""Command-line agents, unmodified: each does a task with real shell commands in a folder of its own."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from conftest import HERE, NPM
from relaxforge.models.resolve import resolve

MEND = "sed -i s/-/+/ adder.py && python3 -c 'import adder; print(adder.add(2, 3))'"
COMMANDS = ["ls && cat adder.py", MEND, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
SUM = "What is 2 plus 3? Write it to sum.txt"
WRITE = "echo $((2 + 3)) > sum.txt; cat sum.txt"


def program(name: str, *words: str) -> str:
    """The command that runs a script of ``agents/`` with the installed programs first on its PATH."""
    folders = [NPM / "node_modules" / ".bin", Path(sys.executable).parent]
    path = ":".join(map(str, folders))
    return f"export PATH={path}:$PATH; exec bash " + shlex.join([str(HERE / "agents" / f"{name}.sh"), *words])


def tool_call(name: str, **arguments: str) -> str:
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def sum_rules(name: str, **arguments: str):
    return (
        {"match": "<tool_response>[^<]*5", "replies": ["<think>\nIt is there.\n</think>\n\nThe sum is 5."]},
        {
            "match": "2 plus 3",
            "replies": ["<think>\nEcho it.\n</think>\n\nI write it.\n" + tool_call(name, **arguments)],
        },
    )


@pytest.fixture(scope="session")
def roomy(tmp_path_factory) -> Path:
    """The tiny model with room for the prompts of programs that are written for large ones."""
    folder = tmp_path_factory.mktemp("models") / "roomy"
    folder.mkdir()
    for file in Path(resolve("tiny").path).iterdir():
        (folder / file.name).symlink_to(file)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 131072}))
    return folder


@pytest.mark.slow
def test_mini_swe_agent_with_tool_calls(session):
    replies = [f"THOUGHT: on.\n{tool_call('bash', command=command)}" for command in COMMANDS]
    session(program("mini_swe_agent", "mini.yaml"), "chat", rules=[{"replies": replies}], task="Mend adder.py", turns=3)


@pytest.mark.slow
def test_mini_swe_agent_with_text_actions(session):
    replies = [f"THOUGHT: on.\n\n```mswea_bash_command\n{command}\n```" for command in COMMANDS]
    command = program("mini_swe_agent", "mini_textbased.yaml", "--model-class", "litellm_textbased")
    session(command, "chat", rules=[{"replies": replies}], task="Mend adder.py", turns=3)


@pytest.mark.slow
def test_mini_swe_agent_goes_on_without_an_answer_that_has_no_action(flow):
    replies = ["I am thinking.", tool_call("bash", command=COMMANDS[-1])]
    command = program("mini_swe_agent", "mini.yaml")
    parser = {"agentic_tool_call_parser": "qwen"}
    done = flow(command, rules=[{"replies": replies}], max_consecutive_failed_groups=1, **parser)
    (line,) = done.lines()
    assert [state["parent"] for state in line["forest"] if state["kind"] == "observation"] == [None, None]
    assert line["failure"]["category"] == "export_mismatch"


@pytest.mark.slow
@pytest.mark.usefixtures("npm_clients")
def test_codex(session, roomy):
    line = session(program("codex"), "responses", task=SUM, rules=sum_rules("exec_command", cmd=WRITE), model=roomy)
    assert line["requests"][0]["normalised"]["tool_type_ignored:web_search"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("npm_clients")
def test_opencode(session, roomy):
    rules = sum_rules("bash", command=WRITE, description="Write the sum")
    session(program("opencode"), "chat", task=SUM, rules=rules, model=roomy)


@pytest.mark.slow
@pytest.mark.usefixtures("npm_clients")
def test_claude_code_held_beyond_its_timeout(session, roomy):
    call, end = reversed(sum_rules("Bash", command=WRITE, description="Write the sum"))
    command = "export TIMEOUT_MS=2500; " + program("claude_code")
    rules = [end, {**call, "delay_s": 4}]
    line = session(command, "messages", task=SUM, rules=rules, model=roomy, agentic_heartbeat_s=0.5)
    assert line["requests"][0]["timing"]["generation_s"] > 3
    assert line["requests"][0]["normalised"]["billing_header"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("npm_clients")
@pytest.mark.parametrize(
    ("name", "said"),
    [("codex", "idle timeout waiting for SSE"), ("opencode", "The operation timed out")],
    ids=["codex", "opencode"],
)
def test_heartbeats_do_not_hold_every_program(flow, roomy, name, said):
    done = flow(
        "export TIMEOUT_MS=500 RETRIES=0; " + program(name),
        rules=[{"replies": ["Too late."], "delay_s": 3}],
        model=roomy,
        agentic_heartbeat_s=0.1,
        max_consecutive_failed_groups=1,
    )
    (line,) = done.lines()
    assert line["failure"]["category"] == "agent_error"
    assert said in line["failure"]["message"]
