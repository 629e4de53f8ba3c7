"""How a Trial came out, in a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from relaxforge.core.sessions import INFRASTRUCTURE

Word = Literal["passed", "partial", "failed", "infrastructure", "unscored", "running", "waiting"]

ORDER: tuple[Word, ...] = ("failed", "partial", "infrastructure", "unscored", "running", "waiting", "passed")
"""Failures first: they are what one comes to look at."""

EXPLANATIONS: dict[Word, str] = {
    "passed": "the reward reached the threshold",
    "partial": "some reward, but below the threshold",
    "failed": "no reward earned, by the agent's doing",
    "infrastructure": "our failure, not the agent's: not scored, not counted in pass@k",
    "unscored": "ended without a score",
    "running": "the agent is at work",
    "waiting": "not started yet",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """``word`` chooses colour and shape; ``short`` stands on a chip, ``detail`` explains."""

    word: Word
    short: str
    detail: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A row of ``evaluation_trials`` as lists show it."""

    row: Mapping[str, Any]
    label: str
    outcome: Outcome

    @property
    def title(self) -> str:
        """One line for a choice."""
        return f"{self.label}: {self.outcome.word}, {self.outcome.short}"


def shown(trial: Mapping[str, Any], threshold: float | None = None) -> Shown:
    """``threshold`` is the least reward that passes, for rows that do not say it themselves."""
    return Shown(trial, label(trial), outcome(trial, threshold))


def label(trial: Mapping[str, Any]) -> str:
    """What a Trial is called among its siblings."""
    if trial.get("training_run_id") is not None:
        return f"Session {trial.get('session_key') or str(trial['id'])[:8]}"
    retry = f", retry {trial['retry_index']}" if trial["retry_index"] else ""
    return f"Trial {trial['trial_number']}{retry}"


def outcome(trial: Mapping[str, Any], threshold: float | None = None) -> Outcome:
    """What became of a row of ``evaluation_trials``."""
    word = _word(trial, threshold)
    category, reward = trial.get("failure_category"), trial.get("reward")
    if word in ("running", "waiting"):
        short = str(trial.get("phase") or word)
    elif word == "infrastructure":
        short = str(category)
    else:
        short = "no score" if reward is None else number(reward)
    parts = [f"{word}: {EXPLANATIONS[word]}"]
    if reward is not None:
        parts.append(f"reward {number(reward)}")
    if category:
        parts.append(f"category {category}")
    if trial.get("reward_status") == "out_of_range":
        parts.append(f"the reward {trial.get('raw_reward') or ''} was outside 0 to 1")
    return Outcome(word, short, "; ".join(parts))


def _word(trial: Mapping[str, Any], threshold: float | None) -> Word:
    if trial["status"] == "created":
        return "waiting"
    if trial["status"] == "running":
        return "running"
    if trial.get("failure_category") in INFRASTRUCTURE:
        return "infrastructure"
    reward = trial.get("reward")
    if reward is None:
        return "unscored"
    if reward >= (threshold or trial.get("pass_threshold") or 1.0):
        return "passed"
    return "partial" if reward > 0 else "failed"


def failures_first(trials: Sequence[Shown]) -> list[Shown]:
    """Failed before passed; within a word by Task and attempt."""
    return sorted(trials, key=lambda each: (ORDER.index(each.outcome.word), *_place(each.row)))


def _place(trial: Mapping[str, Any]) -> tuple[int, int, int]:
    return trial["task_index"], trial["attempt_no"], trial["retry_index"]


def best_and_worst(trials: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The pair that a comparison starts with: highest and lowest reward; without two rewards the first two that ended.

    Of equal rewards the first counts. ``None`` when fewer than two attempts have ended.
    """
    ended = [trial for trial in trials if trial["status"] not in ("created", "running")]
    scored = [trial for trial in ended if trial["reward"] is not None]
    if len(scored) > 1:
        best, worst = max(scored, key=_reward), min(scored, key=_reward)
        return (best, worst) if best is not worst else (scored[0], scored[1])
    if len(ended) < 2:
        return None
    first = scored[0] if scored else ended[0]
    return first, next(trial for trial in ended if trial is not first)


def _reward(trial: Mapping[str, Any]) -> float:
    return float(trial["reward"])


def number(value: float | None, digits: int = 4) -> str:
    """A number as short as it can be said."""
    if value is None:
        return "none"
    return f"{value:.{digits}g}" if abs(value) < 1e4 else f"{value:,.0f}"
