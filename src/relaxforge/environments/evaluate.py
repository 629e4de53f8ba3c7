"""Calls a Python evaluator: ``python -m relaxforge.environments.evaluate FOLDER MODULE.FUNCTION``.

The function gets one ``EvaluatorInput`` and returns the object that a command would write to
``RELAX_EVALUATION_OUTPUT``, or just the reward. It runs in a process of its own, as a command does.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class EvaluatorInput:
    """What an evaluator looks at.

    ``world`` and ``workspace`` are folders as the agent left them, ``task`` is what it was given, ``output`` the text
    that it wrote to ``RELAX_OUTPUT_JSON`` ("" without one), ``steps`` its trajectory and ``label`` what the task keeps
    from it. ``seed`` is the world's.
    """

    seed: int
    world: Path
    workspace: Path
    task: dict[str, Any]
    output: str
    steps: list[dict[str, Any]]
    label: Any

    @classmethod
    def from_environment(cls) -> EvaluatorInput:
        """Read from the variables and files that every evaluator gets."""
        return cls(
            seed=int(os.environ["RELAX_SEED"]),
            world=Path(os.environ["RELAX_WORLD_DIR"]),
            workspace=Path(os.environ["RELAX_WORKSPACE_DIR"]),
            task=_json("RELAX_INPUT_JSON"),
            output=_text("RELAX_OUTPUT_JSON"),
            steps=_json("RELAX_STEPS_JSON"),
            label=_json("RELAX_LABEL_JSON"),
        )


def _text(variable: str) -> str:
    return Path(os.environ[variable]).read_text(encoding="utf-8", errors="replace")


def _json(variable: str) -> Any:
    return json.loads(_text(variable))


def main(folder: str, dotted: str) -> None:
    sys.path.insert(0, str(Path(folder).absolute()))
    module, _, name = dotted.rpartition(".")
    verdict = getattr(importlib.import_module(module), name)(EvaluatorInput.from_environment())
    if not isinstance(verdict, dict):
        verdict = {"reward": verdict}
    Path(os.environ["RELAX_EVALUATION_OUTPUT"]).write_text(json.dumps(verdict), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
