"""The columns of each format, as the ``datasets`` library reads them.

Readers infer a schema from the start of a file. What first appears after that (a reward where all before were null, a
tool call where all before were text) then fails; with these features nothing does.
"""

from __future__ import annotations

from typing import Any

Features = dict[str, Any]


def _value(dtype: str) -> Features:
    return {"dtype": dtype, "_type": "Value"}


def _list(feature: Features) -> Features:
    return {"feature": feature, "_type": "List"}


_TEXT, _WHOLE, _REAL, _TRUTH = _value("string"), _value("int64"), _value("float64"), _value("bool")
_JSON: Features = {"_type": "Json"}
_STEP = {"step": _WHOLE, "tool": _TEXT, "command": _TEXT, "observation": _TEXT}
_CALL = {"id": _TEXT, "type": _TEXT, "function": {"name": _TEXT, "arguments": _TEXT}}
_MESSAGE = {
    "role": _TEXT,
    "content": _TEXT,
    "reasoning_content": _TEXT,
    "tool_calls": _list(_CALL),
    "tool_call_id": _TEXT,
}
_MESSAGES = _list(_MESSAGE)

_PAIR = {
    "schemaVersion": _WHOLE,
    "privacyClass": _TEXT,
    "environmentVersionId": _TEXT,
    "preferredRolloutId": _TEXT,
    "rejectedRolloutId": _TEXT,
    "preferredReward": _REAL,
    "rejectedReward": _REAL,
}

_FORMATS: dict[str, Features] = {
    "atif-shaped": {
        "schemaVersion": _WHOLE,
        "privacyClass": _TEXT,
        "format": _TEXT,
        "rolloutId": _TEXT,
        "seed": _WHOLE,
        "reward": _REAL,
        "evaluationRunId": _TEXT,
        "trajectory": _list(_STEP),
        "environmentVersionId": _TEXT,
        "trainingRunId": _TEXT,
        "trialId": _TEXT,
        "stages": _TEXT,
        "failureCategory": _TEXT,
        "trajectoryStatus": _TEXT,
        "createdAt": _TEXT,
    },
    "atif": {
        "schema_version": _TEXT,
        "session_id": _TEXT,
        "trajectory_id": _TEXT,
        "agent": _JSON,
        "steps": _list(_JSON),
        "final_metrics": _JSON,
        "extra": _JSON,
        "subagent_trajectories": _list(_JSON),
    },
    "trl-sft": {"messages": _MESSAGES, "tools": _TEXT},
    "trl-kto": {"prompt": _MESSAGES, "completion": _MESSAGES, "label": _TRUTH, "tools": _TEXT},
    "trl-preference": {"prompt": _MESSAGES, "chosen": _MESSAGES, "rejected": _MESSAGES, "tools": _TEXT},
    "openai-dpo": {
        "input": {"messages": _MESSAGES, "tools": _list(_JSON), "parallel_tool_calls": _TRUTH},
        "preferred_output": _MESSAGES,
        "non_preferred_output": _MESSAGES,
    },
}


def features(format: str, kind: str = "all") -> Features:  # noqa: A002
    """What ``datasets.Features.from_dict`` takes for a file of that format and kind. Errors: ``KeyError``."""
    return _PAIR if kind == "preference" and format == "atif-shaped" else _FORMATS[format]
