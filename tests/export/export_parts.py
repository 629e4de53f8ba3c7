"""Dump lines by hand, for the tests that read them."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

from relaxforge.core.evidence import StoredRollout
from relaxforge.export.evidence import evidence_of
from relaxforge.export.log import Log


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str | None, *calls: dict[str, Any], reasoning: str = "") -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning:
        message["reasoning_content"] = reasoning
    return {**message, "tool_calls": list(calls)} if calls else message


def result(call_id: str, text: Any) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": call_id}


class Forest:
    """Builds the ``forest`` of a line: ``turn(parent, messages, answer)`` gives the name of the answer's State."""

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []

    def turn(self, parent: str | None, messages: list[dict[str, Any]], answer: dict[str, Any], **more: Any) -> str:
        observation = self._add(parent, "observation", messages, [1, 2, 3], None, **more)
        return self.again(observation, answer)

    def again(self, observation: str, answer: dict[str, Any]) -> str:
        """Another answer to the same conversation."""
        return self._add(observation, "response", answer, [7, 8], [-0.5, -0.25])

    def _add(self, parent: str | None, kind: str, message: Any, tokens: list[int], logprobs: Any, **more: Any) -> str:
        name = f"s{len(self.states) + 1}"
        state = {
            "state": name, "parent": parent, "kind": kind, "hash": "00", "message": message, "tokens": tokens,
            "logprobs": logprobs, "weight_versions": [], "finish_reason": "stop" if logprobs else None,
            "delivered": True if logprobs else None, "request_id": f"a-r{len(self.states) // 2}",
        }  # fmt: skip
        self.states.append({**state, **more})
        return name


def dump(forest: Forest | None = None, *, exported: str | None = None, **changes: Any) -> dict[str, Any]:
    states = forest.states if forest else []
    sample = {"name": "", "state": exported, "tokens": [1, 2, 3, 7, 8], "prompt_length": 3, "loss_mask": [1, 1],
              "logprobs": [-0.5, -0.25], "reward": None, "advantage": None, "metadata": {}}  # fmt: skip
    line = {
        "schema_version": 1, "run_id": "r", "incarnation": 0, "rollout_id": 0, "group_id": "g", "session_id": "a",
        "mode": "eval", "task_index": 0, "task": None, "seed": 0, "status": "completed", "failure": None,
        "drop_reason": None, "reward": None, "reward_detail": None, "advantage": None, "metadata": {},
        "duration_s": {"prepare": 0.5, "wait": 0.0, "active": 2.0, "generation": 1.5, "reward": 0.25},
        "turns": sum(state["kind"] == "response" for state in states), "abort_count": 0, "forest": states,
        "requests": [], "drift": [], "render_differences": {}, "samples": [sample] if exported else [],
        "tokens": {"sampled": 0, "trained": 0, "masked": {}, "undelivered": 0, "repeats": 0},
    }  # fmt: skip
    return {**line, **changes}


def shop() -> tuple[Forest, str]:
    """An agent that looks, orders and reports; the name of its last State."""
    forest = Forest()
    looked = forest.turn(
        None,
        [{"role": "system", "content": "You run errands."}, user("Buy two blue mugs.")],
        said("Let me look.", call("c1", "mcp", '{"command":"initialize"}')),
    )
    ordered = forest.turn(looked, [result("c1", "ready")], said(None, call("c2", "order", '{"item": "mug", "n": 2}')))
    return forest, forest.turn(ordered, [result("c2", "placed ORD-8841")], said("Done."))


def stored(line: dict[str, Any] | None = None, **changes: Any) -> StoredRollout:
    """A rollout whose bodies were made as a worker makes them."""
    number = next(_numbers)
    row: dict[str, Any] = {"id": f"00000000-0000-0000-0000-{number:012}", "trial_id": f"trial-{number}", "seed": 0,
           "reward": 0.15, "created_at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
           "environment_version_id": "version", "evaluation_run_id": "run", "agent_name": "shopper",
           "agent_version": "1.2"}  # fmt: skip
    if line is not None:
        kept = evidence_of(line, Log.of("log"))
        row |= {"trajectory": kept.trajectory, "session": kept.session, "trajectory_status": "present"}
    return StoredRollout(**{**row, **changes})


_numbers = itertools.count(1)
