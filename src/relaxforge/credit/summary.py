"""The result of repeated attempts: pass@k and pass^k with everything that is needed to judge them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from math import sqrt
from statistics import fmean
from typing import Any

from relaxforge.credit.passk import coverage, pass_at_k, pass_hat_k

ESTIMATOR = "unbiased"
"""pass@k = 1 - C(n-c, k) / C(n, k), pass^k = C(c, k) / C(n, k), per task; over tasks their mean."""

LEVEL, Z = 0.95, 1.959963984540054

Estimate = Callable[[int, int, int], float | None]


def summarise(attempts: Iterable[Mapping[str, Any]], attempt_count: int, threshold: float) -> dict[str, Any]:
    """The summary of one evaluation run, ready for JSON.

    ``attempts`` have ``task_index``, ``attempt_no``, ``retry_index`` and ``reward``. Of an attempt that was repeated
    the last repetition counts. A reward of at least ``threshold`` is a success; without a reward the attempt was not
    scored (the fault was ours) and is not in n. A k that no task has enough scored attempts for is ``None``.
    """
    tasks = _by_task(attempts)
    parts = [_part(task, rewards, attempt_count, threshold) for task, rewards in sorted(tasks.items())]
    rewards = [reward for part in tasks.values() for reward in part]
    return {
        "estimator": ESTIMATOR,
        "threshold": threshold,
        "attemptCount": attempt_count,
        **_counts(rewards, threshold),
        "meanReward": _mean(reward for reward in rewards if reward is not None),
        "passAtK": {str(k): _mean(part["passAtK"][str(k)] for part in parts) for k in range(1, attempt_count + 1)},
        "passHatK": {str(k): _mean(part["passHatK"][str(k)] for part in parts) for k in range(1, attempt_count + 1)},
        "tasksAtK": {str(k): sum(part["n"] >= k for part in parts) for k in range(1, attempt_count + 1)},
        "tasks": parts,
    }


def wilson(n: int, c: int) -> dict[str, Any] | None:
    """The Wilson score interval of the success rate ``c / n`` at 95 %; ``None`` when nothing was scored."""
    if not n:
        return None
    rate, square = c / n, Z * Z
    middle = (rate + square / (2 * n)) / (1 + square / n)
    half = Z / (1 + square / n) * sqrt(rate * (1 - rate) / n + square / (4 * n * n))
    # At 0 and 1 the bound is the rate itself, which rounding would miss by a hair.
    low, high = middle - half if c else 0.0, middle + half if c < n else 1.0
    return {"method": "wilson", "level": LEVEL, "low": low, "high": high}


def _by_task(attempts: Iterable[Mapping[str, Any]]) -> dict[int, list[float | None]]:
    last: dict[tuple[int, int], Mapping[str, Any]] = {}
    for attempt in attempts:
        key = attempt["task_index"], attempt["attempt_no"]
        if key not in last or last[key]["retry_index"] < attempt["retry_index"]:
            last[key] = attempt
    tasks: defaultdict[int, list[float | None]] = defaultdict(list)
    for (task, _), attempt in last.items():
        tasks[task].append(attempt["reward"])
    return tasks


def _part(task: int, rewards: list[float | None], attempt_count: int, threshold: float) -> dict[str, Any]:
    counts = _counts(rewards, threshold)
    estimates: dict[str, Estimate] = {"passAtK": pass_at_k, "passHatK": pass_hat_k}
    return {
        "task": task,
        **counts,
        **{
            name: {str(k): estimate(counts["n"], counts["c"], k) for k in range(1, attempt_count + 1)}
            for name, estimate in estimates.items()
        },
    }


def _counts(rewards: list[float | None], threshold: float) -> dict[str, Any]:
    scored = [reward for reward in rewards if reward is not None]
    passed = sum(reward >= threshold for reward in scored)
    return {
        "attempted": len(rewards),
        "n": len(scored),
        "c": passed,
        "coverage": coverage(len(scored), len(rewards)),
        "interval": wilson(len(scored), passed),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
