"""Whole flows: ``relaxforge rollout`` with real agent processes, the scripted engine and the tiny model."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relaxforge.cli.main import main

AGENTS = Path(__file__).parent / "agents"
EOT = 1


@dataclass
class Flow:
    """One run in a folder of its own. ``code`` is the exit code."""

    code: int
    run_dir: Path
    out: str
    err: str

    def lines(self, name: str = "0") -> list[dict[str, Any]]:
        path = self.run_dir / "rollouts" / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def metrics(self) -> list[dict[str, Any]]:
        path = self.run_dir / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    @property
    def events(self) -> str:
        return (self.run_dir / "events.log").read_text(encoding="utf-8")


@pytest.fixture
def flow(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Flow]:
    """Run an agent of ``agents/`` (or any command) on ``tasks`` with scripted ``rules``; keywords become flags."""

    def run(
        agent: str,
        tasks: Sequence[dict[str, Any]] = ({"input": "Hello?"},),
        rules: Sequence[dict[str, Any]] = ({"replies": ["Hi."]},),
        *,
        command: str = "rollout",
        **flags: Any,
    ) -> Flow:
        (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
        (tmp_path / "replies.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in rules))
        script = f"exec {sys.executable} {AGENTS / agent}.py" if (AGENTS / f"{agent}.py").exists() else agent
        settings = {
            "model": "tiny",
            "engine": "scripted",
            "scripted_replies": tmp_path / "replies.jsonl",
            "prompt_data": tmp_path / "tasks.jsonl",
            "agent_command": script,
            "agent_cwd": AGENTS,
            "run_dir": tmp_path / "run",
            "rollout_batch_size": 1,
            "n_samples_per_prompt": 1,
            "num_rollout": 1,
            "agent_kill_grace": 0.2,
            "max_consecutive_failed_groups": 2,
            "debug_check_integrity": True,
        }
        code = main([command, *_flags({**settings, **flags})])
        captured = capfd.readouterr()
        return Flow(code, Path(settings["run_dir"]), captured.out, captured.err)

    return run


def _flags(settings: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list | tuple):
            words += [f"--{flag}", *map(str, value)]
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words
