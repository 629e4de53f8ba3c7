"""What can be known about the agent command before anything starts."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.environment import base_environment
from relaxforge.agents.sandbox import check_sandbox, check_shown, sandboxed
from relaxforge.core.errors import ConfigError

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PLAIN = re.compile(r"[\w./+-][\w./+:@%,-]*")
_INTERPRETERS = frozenset(("bash", "sh", "python", "python3", "node"))


def check_command(config: AgentConfig, parent: Mapping[str, str]) -> None:
    """Refuse an agent command that cannot start, in the environment that agents will have.

    The shell itself is asked about syntax and about the first word; where shell syntax decides only at run time what
    is started, nothing is claimed. Errors: ``ConfigError`` with what to write instead.
    """
    cwd = Path(config.agent_cwd)
    if not cwd.is_dir():
        raise ConfigError(f"--agent-cwd {config.agent_cwd} is not a directory; name the folder of the agent")
    if not config.agent_command.strip():
        raise ConfigError("--agent-command is missing; give the command that starts one agent")
    env = base_environment(config, parent)
    check_sandbox(config, env)
    if config.agent_sandbox != "none":
        check_shown("--agent-cwd", config.agent_cwd)
    syntax = _bash(["-n", "-c", config.agent_command], config, env)
    if syntax.returncode:
        raise ConfigError(f"--agent-command is not valid for bash: {syntax.stderr.strip()}")
    words = _first_words(config.agent_command)
    if not words:
        return
    if _bash(["-c", 'type -t -- "$1"', "bash", words[0]], config, env).returncode:
        raise ConfigError(f"--agent-command: {words[0]!r} {_why_not(words[0], config, env)}")
    if _names_missing_script(words, cwd):
        raise ConfigError(f"--agent-command: there is no {words[1]!r} in --agent-cwd {cwd.resolve()}")


def _bash(arguments: list[str], config: AgentConfig, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = [shutil.which("bash") or "/bin/bash", *arguments]
    try:
        return subprocess.run(
            sandboxed(config, words, config.agent_cwd), cwd=config.agent_cwd, env=env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(f"bash cannot be started ({error}); agents are started with bash -c") from error


def _first_words(command: str) -> list[str]:
    """The first command's name and, where it is plain text too, its first argument; empty when undecidable."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return []
    while words and _ASSIGNMENT.match(words[0]):
        words.pop(0)
    if len(words) > 1 and words[1].startswith("("):  # a function definition
        return []
    plain: list[str] = []
    for word in words[:2]:
        if not _PLAIN.fullmatch(word):
            break
        plain.append(word)
    return plain


def _names_missing_script(words: list[str], cwd: Path) -> bool:
    return (
        len(words) == 2
        and Path(words[0]).name in _INTERPRETERS
        and not words[1].startswith("-")
        and not (cwd / words[1]).exists()
    )


def _why_not(word: str, config: AgentConfig, env: Mapping[str, str]) -> str:
    cwd = Path(config.agent_cwd)
    if config.agent_sandbox != "none" and (outside := shutil.which(word, path=env.get("PATH"))):
        return f"is {outside}, which the sandbox does not show; add its installation with --agent-sandbox-path"
    if "/" in word:
        found = (cwd / word).exists()
        return "is not executable; chmod +x it" if found else f"does not exist in --agent-cwd {cwd.resolve()}"
    if (cwd / word).is_file():
        return f"is not on PATH but lies in --agent-cwd; write ./{word}, or its interpreter before it"
    near = get_close_matches(word, _commands(env.get("PATH", "")), n=1)
    return "is not on the agent's PATH" + (f"; did you mean {near[0]!r}?" if near else "; give its full path")


def _commands(path: str) -> set[str]:
    folders = [folder for name in path.split(os.pathsep) if (folder := Path(name)).is_dir()]
    return {file.name for folder in folders for file in folder.iterdir()}
