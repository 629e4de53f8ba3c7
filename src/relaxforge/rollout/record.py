"""The dump line: everything about one ended Session, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from relaxforge.core.messages import chat_message, chat_tool
from relaxforge.core.turns import VersionSpan
from relaxforge.forest.lineage import sample
from relaxforge.forest.select import Context
from relaxforge.forest.state import Kind, State
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.requests import RequestRecord

SCHEMA_VERSION = 1


def dump_line(outcome: Outcome, *, run_id: str, incarnation: int, rollout_id: int) -> dict[str, Any]:
    """One line of ``rollouts/{rollout_id}.jsonl``; the README of the run directory lists the fields."""
    session, identity = outcome.session, outcome.session.identity
    account = outcome.tokens
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "incarnation": incarnation,
        "rollout_id": rollout_id,
        "group_id": identity.group_id,
        "session_id": identity.session_id,
        "mode": identity.mode,
        "task_index": identity.task.index,
        "task": identity.task.metadata,
        "seed": identity.seed,
        "status": str(outcome.status),
        "failure": asdict(outcome.failure) if outcome.failure else None,
        "drop_reason": outcome.drop_reason,
        "reward": outcome.reward,
        "reward_detail": outcome.reward_detail,
        "advantage": outcome.advantage,
        "metadata": outcome.metadata,
        "verdict": asdict(outcome.verdict) if outcome.verdict else None,
        "duration_s": {key: round(value, 6) for key, value in outcome.durations.items()},
        "turns": sum(1 for _ in session.forest.responses),
        "abort_count": sum(attempt["aborted"] for record in session.records for attempt in record.attempts),
        **said_and_done(outcome),
        "requests": [_request(record) for record in session.records],
        "drift": [
            {"request_id": record.request_id, **asdict(note)} for record in session.records for note in record.drift
        ],
        "render_differences": dict(session.notices),
        "samples": [_sample(context, outcome) for context in outcome.contexts],
        "tokens": {
            "sampled": account.sampled,
            "trained": account.trained,
            "masked": dict(account.masked),
            "undelivered": account.undelivered,
            "repeats": account.repeats,
        },
    }


def said_and_done(outcome: Outcome) -> dict[str, Any]:
    """The part of the line that trajectories are made from: the forest, its tools, and the steps the agent noted."""
    forest = outcome.session.forest
    offers = {root.digest: tools for root in forest.roots if (tools := forest.offered(root))}
    sets = list(dict.fromkeys(offers.values()))
    places = {digest: sets.index(tools) for digest, tools in offers.items()}
    return {
        "tools": [[chat_tool(tool) for tool in tools] for tools in sets],
        "forest": [_state(state, places) for state in forest.states if state.parent is not None],
        "steps": [
            {"tool": step.tool, "command": step.command, "observation": step.observation} for step in outcome.steps
        ],
    }


def _state(state: State, tools: Mapping[bytes, int]) -> dict[str, Any]:
    messages = [chat_message(message) for message in state.messages]
    offered = tools.get(state.parent.digest) if state.parent and state.parent.kind is Kind.ROOT else None
    row = {
        "state": state.name,
        "parent": _name(state.parent),
        "kind": str(state.kind),
        "hash": state.digest.hex(),
        "message": messages[0] if state.is_response else messages,
        "tokens": state.tokens.tolist(),
        "logprobs": state.logprobs.tolist() if state.is_response else None,
        "weight_versions": _spans(state.versions),
        "finish_reason": str(state.finish) if state.finish else None,
        "delivered": bool(state.delivered) if state.is_response else None,
        "request_id": state.request_id,
    }
    return row if offered is None else {**row, "tools": offered}


def _name(state: State | None) -> str | None:
    """The name of a State in the dump, which leaves out the technical roots."""
    return None if state is None or state.kind is Kind.ROOT else state.name


def _request(record: RequestRecord) -> dict[str, Any]:
    return {
        "request_id": record.request_id,
        "api": record.api,
        "parent_state": _name(record.parent),
        "state": _name(record.state),
        "http_status": record.http_status,
        "error": record.error,
        "new_messages": record.new_messages,
        "normalised": dict(record.normalised),
        "delivered": record.delivered,
        "retry_of": record.retry_of,
        "attempts": record.attempts,
        "usage": asdict(record.usage) if record.usage else None,
        "timing": record.timing,
    }


def _sample(context: Context, outcome: Outcome) -> dict[str, Any]:
    row = sample(context)
    metadata, reward = outcome.written(context)
    return {
        "name": row.name,
        "state": row.state,
        "tokens": row.tokens.tolist(),
        "prompt_length": row.prompt_length,
        "response_length": row.response_length,
        "loss_mask": row.loss_mask.tolist(),
        "logprobs": row.logprobs.tolist(),
        "weight_versions": _spans(row.versions),
        "turns": row.turns,
        "terminal_status": row.terminal_status,
        "reward": outcome.reward if context is outcome.representative else reward,
        "advantage": outcome.advantage,
        "metadata": metadata,
    }


def _spans(versions: Sequence[VersionSpan]) -> list[list[int]]:
    return [[span.version, span.start, span.end] for span in versions]
