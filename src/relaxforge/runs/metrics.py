"""Numbers of a step or an evaluation, computed from the outcomes of its Sessions. Names: docs/metrics.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from relaxforge.credit.passk import coverage, pass_at_k, pass_hat_k
from relaxforge.forest.lineage import sample
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.step import StepSummary

LARGEST = 1e300
"""Numbers beyond this say nothing as a metric, and JSON integers may not even fit a float."""

SUCCESS = 1.0
"""A Session succeeds when its primary reward is exactly this."""


def rollout_metrics(outcomes: Sequence[Outcome], summary: StepSummary) -> dict[str, float]:
    """Metrics over the Sessions that are trained (``outcomes``) and the counts of the whole step."""
    rows = [sample(context) for outcome in outcomes for context in outcome.contexts]
    metrics = {
        **_named("rollout/raw_reward", [outcome.reward for outcome in outcomes], spread=False),
        **_named("rollout/response_length", [row.response_length for row in rows]),
        **_named("num_turn", [row.turns for row in rows]),
        **_helper_metrics(outcomes),
        **_metadata_metrics(outcomes),
        "rollout/truncated_ratio": _mean([row.terminal_status == "truncated" for row in rows]),
        "rollout/groups": float(summary.groups),
        "rollout/rows": float(summary.rows),
        **{f"rollout/sessions/{status}": float(count) for status, count in summary.statuses.items()},
        **{f"rollout/failures/{category}": float(count) for category, count in summary.failures.items()},
        **{f"tokens/{kind}": float(count) for kind, count in summary.tokens.items()},
    }
    return {name: value for name, value in metrics.items() if value is not None}


def passrate_metrics(groups: Iterable[Sequence[Outcome]], prefix: str = "passrate") -> dict[str, float]:
    """pass@1, 2, 4, ... up to the Group size, over Groups with enough scored Sessions; k without any is left out."""
    counts = [_successes(group) for group in groups]
    metrics: dict[str, float] = {}
    size = max((scored for scored, _ in counts), default=0)
    k = 1
    while k <= size:
        for label, estimate in (("pass@", pass_at_k), ("pass^", pass_hat_k)):
            values = [estimate(n, c, k) for n, c in counts]
            known = [value for value in values if value is not None]
            if known:
                metrics[f"{prefix}/{label}{k}"] = statistics.fmean(known)
        k *= 2
    return metrics


def eval_metrics(dataset: str, tasks: Mapping[int, Sequence[Outcome]], samples: int) -> dict[str, float]:
    """One evaluation: failures of the agent count 0, failures of ours are left out and show in ``coverage``."""
    outcomes = [outcome for group in tasks.values() for outcome in group]
    scores = [score for outcome in outcomes if (score := eval_score(outcome)) is not None]
    prefix = f"eval/{dataset}"
    metrics: dict[str, float] = {
        f"{prefix}/attempted": float(len(outcomes)),
        f"{prefix}/scored": float(len(scores)),
        f"{prefix}/coverage": coverage(len(scores), len(outcomes)) or 0.0,
    }
    if scores:
        metrics[f"{prefix}/reward"] = statistics.fmean(scores)
        metrics[f"{prefix}/accuracy"] = _mean([score == SUCCESS for score in scores]) or 0.0
    for outcome in outcomes:
        if outcome.failure is not None:
            name = f"{prefix}/failures/{outcome.failure.category}"
            metrics[name] = metrics.get(name, 0.0) + 1
    if samples > 1:
        metrics |= passrate_metrics(tasks.values(), f"{prefix}/passrate")
    return metrics


def eval_score(outcome: Outcome) -> float | None:
    """A Session's score in an evaluation: its reward, 0 when the agent failed, ``None`` when the fault was ours."""
    if outcome.failure is not None:
        return None if outcome.failure.category.infrastructure else 0.0
    return outcome.reward


def _successes(group: Sequence[Outcome]) -> tuple[int, int]:
    scores = [eval_score(outcome) for outcome in group]
    return sum(score is not None for score in scores), sum(score == SUCCESS for score in scores)


def _helper_metrics(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """Numeric fields of reward objects, under ``rollout/<field>/``."""
    details = [outcome.reward_detail for outcome in outcomes if isinstance(outcome.reward_detail, dict)]
    return {k: v for name, values in _columns(details).items() for k, v in _named(f"rollout/{name}", values).items()}


def _metadata_metrics(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """Top-level numeric fields of output metadata, under ``<field>/``."""
    columns = _columns([outcome.metadata for outcome in outcomes])
    return {k: v for name, values in columns.items() for k, v in _named(name, values).items()}


def _columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int | float) and abs(value) <= LARGEST:
                columns.setdefault(name, []).append(float(value))
    return columns


def _named(name: str, values: Iterable[float | None], *, spread: bool = True) -> dict[str, float | None]:
    known = [float(value) for value in values if value is not None]
    if not spread:
        return {name: _mean(known)}
    if not known:
        return {}
    return {
        f"{name}/mean": statistics.fmean(known),
        f"{name}/median": statistics.median(known),
        f"{name}/max": max(known),
        f"{name}/min": min(known),
    }


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
