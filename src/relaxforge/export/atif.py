"""A rollout as a document in the Agent Trajectory Interchange Format (ATIF v1.7).

Version 1.7 is the newest that most readers take. It has no field for a reward: reward, stages and the ids of the
source are under ``extra``. Sources: the ATIF RFC, and what its validators really refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from relaxforge.core import strict_json
from relaxforge.core.evidence import StoredRollout, TrajectoryStep
from relaxforge.export.content import text_of
from relaxforge.export.conversation import Forest, StateRow, messages_in, read_session
from relaxforge.export.evidence import usage_of
from relaxforge.export.lines import PRIVATE, encode_line, read_steps, timestamp
from relaxforge.export.trajectory import MESSAGE

ATIF_VERSION = "ATIF-v1.7"


def atif_line(rollout: StoredRollout, *, tokens: bool = False) -> bytes | None:
    """The document as one line; ``None`` for a rollout without steps, which ATIF cannot express.

    With ``tokens`` each step of the model carries its prompt and completion ids and logprobs, where they are kept.
    """
    document = atif_document(rollout, tokens=tokens)
    return encode_line(document) if document else None


def atif_document(rollout: StoredRollout, *, tokens: bool = False) -> dict[str, Any] | None:
    """As ``atif_line``, as a value.

    The main conversation is the document; forks and side conversations are embedded in it as subagent trajectories,
    and what they share with an earlier one is marked as copied.
    """
    recorded, _ = read_steps(rollout)
    line = read_session(rollout.session) or {}
    forest = Forest(line)
    writer = _Writer(forest, tokens)
    conversations = [writer.steps(leaf) for leaf in forest.leaves()]
    main = conversations.pop(0) if conversations else [{"source": "user", "message": ""}] if recorded else []
    appended = _appended(recorded, line) if line else recorded
    main += [_appended_step(step) for step in appended]
    if not main:
        return None
    document = {
        "schema_version": ATIF_VERSION,
        "session_id": rollout.evaluation_run_id or rollout.training_run_id or rollout.id,
        "trajectory_id": rollout.id,
        "agent": _agent(rollout, forest),
        "steps": _numbered(main),
        "final_metrics": _final_metrics(line, len(main)),
        "extra": _extra(rollout, complete=bool(line)),
    }
    if conversations:
        document["subagent_trajectories"] = [
            {
                "schema_version": ATIF_VERSION,
                "trajectory_id": f"{rollout.id}-{number}",
                "agent": _agent(rollout, forest),
                "steps": _numbered(steps),
            }
            for number, steps in enumerate(conversations, start=1)
        ]
    return document


def _appended(recorded: Sequence[TrajectoryStep], line: Mapping[str, Any]) -> Sequence[TrajectoryStep]:
    """Of all recorded steps, those that the agent wrote itself; they come last."""
    count = len(line.get("steps") or ())
    return recorded[len(recorded) - count :] if count else ()


class _Writer:
    """Conversations of one forest as ATIF steps; remembers which States stand in an earlier one."""

    def __init__(self, forest: Forest, tokens: bool) -> None:
        self._forest = forest
        self._tokens = tokens
        self._written: set[str] = set()
        requests = forest.line.get("requests") or ()
        self._usage = {request["state"]: request["usage"] for request in requests if request.get("usage")}

    def steps(self, leaf: str) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = []
        prompt: list[int] | None = []
        for state in self._forest.lineage(leaf):
            known = len(steps)
            if state.get("redacted"):
                prompt = None  # Ids that spell a secret were not kept, so from here on the prompt is not whole.
            if state["kind"] == "observation":
                _observe(state, steps)
            else:
                steps.append(self._said(state, prompt))
            if state["state"] in self._written:
                for step in steps[known:]:
                    step["is_copied_context"] = True
            self._written.add(state["state"])
            if prompt is not None:
                prompt += state["tokens"]
        return steps

    def _said(self, state: StateRow, prompt: Sequence[int] | None) -> dict[str, Any]:
        step = _agent_step(state["message"], llm_call_count=1)
        if reasoning := state["message"].get("reasoning_content"):
            step["reasoning_content"] = reasoning
        if metrics := self._metrics(state, prompt):
            step["metrics"] = metrics
        return step

    def _metrics(self, state: StateRow, prompt: Sequence[int] | None) -> dict[str, Any]:
        counted = self._usage.get(state["state"])
        if counted:
            metrics = {key: counted[key] for key in _USAGE if counted.get(key) is not None}
        elif state["tokens"] and prompt is not None:
            metrics = {"prompt_tokens": len(prompt), "completion_tokens": len(state["tokens"])}
        else:
            return {}
        if self._tokens and state["tokens"] and prompt is not None:
            metrics["prompt_token_ids"] = list(prompt)
            metrics["completion_token_ids"] = state["tokens"]
            metrics["logprobs"] = state["logprobs"]
        return metrics


_USAGE = ("prompt_tokens", "completion_tokens", "cached_tokens")


def _observe(state: StateRow, steps: list[dict[str, Any]]) -> None:
    """Tool results go to the step that called; everything else that the agent sent is a step of its own."""
    for message in messages_in(state):
        role = message["role"]
        if role == "tool" and steps and steps[-1].get("tool_calls"):
            _attach(steps[-1], message)
        elif role == "assistant":
            # Written by the agent in the model's name: no model call made it, so nobody should learn from it.
            steps.append(_agent_step(message, llm_call_count=0))
        else:
            steps.append({"source": "system" if role == "system" else "user", "message": text_of(message)})


def _agent_step(message: Mapping[str, Any], llm_call_count: int) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent", "message": text_of(message), "llm_call_count": llm_call_count}
    if calls := message.get("tool_calls"):
        step["tool_calls"] = _tool_calls(calls)
    return step


def _attach(step: dict[str, Any], message: Mapping[str, Any]) -> None:
    """Put a tool result beside its call, by id, else beside the next call without one."""
    results = step.setdefault("observation", {"results": []})["results"]
    answered = {result["source_call_id"] for result in results}
    ids = [call["tool_call_id"] for call in step["tool_calls"] if call["tool_call_id"] not in answered]
    wanted = message.get("tool_call_id")
    if ids:
        call_id = wanted if wanted in ids else ids[0]
        results.append({"source_call_id": call_id, "content": text_of(message)})


def _tool_calls(calls: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    shaped: list[dict[str, Any]] = []
    taken: set[str] = set()
    for number, call in enumerate(calls, start=1):
        call_id = call["id"] if call["id"] and call["id"] not in taken else f"{call['id'] or 'call'}-{number}"
        taken.add(call_id)
        function = call["function"]
        arguments = _arguments(function["arguments"])
        shaped.append({"tool_call_id": call_id, "function_name": function["name"], "arguments": arguments})
    return shaped


def _arguments(text: str) -> dict[str, Any]:
    """Arguments must be an object; whatever else the model wrote stands under ``command``."""
    try:
        value = strict_json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"command": value}


def _appended_step(step: TrajectoryStep) -> dict[str, Any]:
    """A step that is known by its recorded row alone."""
    extra, call_id = {"worker_step": step.step}, f"step-{step.step}"
    if step.tool == MESSAGE and not step.command:
        return {"source": "agent", "message": step.observation, "extra": extra}
    call = {"tool_call_id": call_id, "function_name": step.tool, "arguments": {"command": step.command}}
    result = {"source_call_id": call_id, "content": step.observation}
    return {
        "source": "agent",
        "message": "",
        "tool_calls": [call],
        "observation": {"results": [result]},
        "extra": extra,
    }


def _numbered(steps: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]


def _agent(rollout: StoredRollout, forest: Forest) -> dict[str, Any]:
    agent: dict[str, Any] = {"name": rollout.agent_name or "agent", "version": rollout.agent_version or "unknown"}
    if rollout.model_name:
        agent["model_name"] = rollout.model_name
    if tools := forest.tools(forest.lineage(forest.main())):
        agent["tool_definitions"] = tools
    return agent


def _final_metrics(line: Mapping[str, Any], steps: int) -> dict[str, Any]:
    prompt_tokens, completion_tokens = usage_of(line)
    return {
        "total_prompt_tokens": prompt_tokens,
        "total_completion_tokens": completion_tokens,
        "total_steps": steps,
    }


def _extra(rollout: StoredRollout, *, complete: bool) -> dict[str, Any]:
    return {
        "privacyClass": PRIVATE,
        "rolloutId": rollout.id,
        "trialId": rollout.trial_id,
        "environmentVersionId": rollout.environment_version_id or "",
        "evaluationRunId": rollout.evaluation_run_id or "",
        "trainingRunId": rollout.training_run_id or "",
        "seed": rollout.seed,
        "worldSeed": rollout.world_seed,
        "reward": rollout.reward,
        "stages": rollout.stages,
        "failureCategory": rollout.failure_category or "",
        "conversationKept": complete,
        "createdAt": timestamp(rollout.created_at),
    }
