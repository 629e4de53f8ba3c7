"""What the Python agents here share: the question, a tool that really adds, and the reward."""

import json
import os
from pathlib import Path

TIMEOUT_S = float(os.environ.get("TIMEOUT_S", "9999"))
"""How long a client waits: requests may be held for as long as their Group is."""

PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def question() -> str:
    return json.loads(Path(os.environ["RELAX_INPUT_JSON"]).read_text(encoding="utf-8"))["messages"][-1]["content"]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def run_tool(arguments: str) -> str:
    return str(add(**json.loads(arguments)))


def finish(answer: str) -> None:
    output = {"reward": float(answer.strip().endswith("5.")), "metadata": {"answer": answer}}
    Path(os.environ["RELAX_OUTPUT_JSON"]).write_text(json.dumps(output), encoding="utf-8")
