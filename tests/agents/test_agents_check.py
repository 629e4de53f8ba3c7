"""Agent commands that cannot start are refused before a run; whatever only the shell can know is left to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relaxforge.agents.check import check_command
from relaxforge.agents.config import AgentConfig
from relaxforge.core.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "run.sh").write_text("exit 0\n")
    (tmp_path / "bin").mkdir()
    for name in ("tool", "bin/python", "bin/python3"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def check(command: str, cwd: Path, **settings: tuple[str, ...]) -> None:
    parent = {"PATH": f"{cwd}/bin:{os.environ['PATH']}"}
    check_command(AgentConfig(agent_command=command, agent_cwd=str(cwd), **settings), parent)


@pytest.mark.parametrize(
    "command",
    [
        "bash run.sh",
        "./tool --flag",
        "A=1 B='x y' bash run.sh",
        "exec bash run.sh",
        "cd sub && python -m my_agent",
        "if true; then bash run.sh; fi",
        "python -m my_agent --input ${RELAX_INPUT_JSON}",
        "$AGENT --fast",
        "(bash run.sh)",
        "{ bash run.sh; }",
        "> log bash run.sh",
        "f() { bash run.sh; }; f",
        "function f { true; }; f",
        "bash $SCRIPT",
        "bash -c 'exit 0'",
        "# nothing but a comment",
        "~/agent/run",
    ],
)
def test_commands_that_may_start_are_accepted(home: Path, command: str) -> None:
    check(command, home)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "--agent-command is missing"),
        ("  \n", "--agent-command is missing"),
        ("bash 'run.sh", "not valid for bash: .*unexpected EOF"),
        ("if true; then", "not valid for bash"),
        ("no-such-program-x --flag", "'no-such-program-x' is not on the agent's PATH; give its full path"),
        ("A=1 no-such-program-x", "'no-such-program-x' is not on"),
        ("bsah run.sh", "'bsah' is not on the agent's PATH; did you mean 'bash'"),
        ("tool --flag", "'tool' is not on PATH but lies in --agent-cwd; write ./tool"),
        ("./run.sh", "'./run.sh' is not executable; chmod"),
        ("./missing.sh", "'./missing.sh' does not exist in --agent-cwd /"),
        ("bash missing.sh --x", "there is no 'missing.sh' in --agent-cwd /"),
        ("python3 agents/missing.py", "there is no 'agents/missing.py'"),
    ],
)
def test_commands_that_cannot_start_say_why(home: Path, command: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check(command, home)


@pytest.mark.parametrize("cwd", ["missing", "run.sh"])
def test_a_cwd_that_is_no_directory_is_refused(home: Path, cwd: str) -> None:
    with pytest.raises(ConfigError, match=f"--agent-cwd {home / cwd} is not a directory"):
        check("true", home / cwd)


def test_the_agents_own_path_decides(home: Path) -> None:
    check("tool", home, agent_env=(f"PATH={home}",))
    with pytest.raises(ConfigError, match="'python3' is not on the agent's PATH"):
        check("python3 x.py", home, agent_env=(f"PATH={home}",))
