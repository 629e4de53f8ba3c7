"""The evidence of an attempt as columns of evaluation_trials."""

from __future__ import annotations

from typing import Any

from relaxforge.core.evidence import TrialEvidence

_OF_ATTEMPT = (
    "status", "failure_message", "turns", "prompt_tokens", "completion_tokens", "duration_s", "durations",
    "step_count", "log_truncated", "sanitised",
)  # fmt: skip
_OF_VERDICT = ("reward", "reward_status", "raw_reward", "stages", "metrics", "failure_category")


def evidence_columns(evidence: TrialEvidence) -> dict[str, Any]:
    """By name. The two artifacts are stored elsewhere."""
    return {
        **{name: getattr(evidence, name) for name in _OF_ATTEMPT},
        **{name: getattr(evidence.verdict, name) for name in _OF_VERDICT},
    }
