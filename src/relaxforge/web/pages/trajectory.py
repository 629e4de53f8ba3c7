"""The trajectory of a Trial as pages show it: slices, search, and two of them side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from relaxforge.core.evidence import TrajectoryStep
from relaxforge.export.trajectory import MESSAGE
from relaxforge.web.pages.agent_text import visible

PAGE_SIZE = 50
MOST_HITS = 200
_AROUND = 70

Likeness = Literal["same", "observation", "action", "left", "right"]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What ``trial-{n}-trajectory.json`` holds; ``damaged`` says why it could not be read."""

    steps: tuple[TrajectoryStep, ...] = ()
    log: str = ""
    damaged: str | None = None


@dataclass(frozen=True, slots=True)
class StepPage:
    """Some consecutive steps; ``earlier`` and ``later`` are the first steps of the neighbouring pages."""

    steps: Sequence[TrajectoryStep]
    total: int
    earlier: int | None
    later: int | None


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a search found something: ``before``, ``match`` and ``after`` are the words around it."""

    step: int
    where: str
    before: str
    match: str
    after: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Step ``number`` of two trajectories; ``likeness`` says what differs, or which side alone has it."""

    number: int
    left: TrajectoryStep | None
    right: TrajectoryStep | None
    likeness: Likeness


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two trajectories by step. ``action`` and ``observation`` are the first steps where those differ."""

    pairs: Sequence[Pair]
    action: int | None
    observation: int | None

    @property
    def divergence(self) -> int | None:
        """The first step at which anything differs; ``None`` when the two are equal."""
        found = [number for number in (self.action, self.observation) if number is not None]
        return min(found) if found else None


def read_trajectory(body: bytes) -> Trajectory:
    """Read the artifact. One that is not what we write is shown as damaged, never as an error page."""
    try:
        record = json.loads(body)
        steps = json.loads(record["trajectory"])["steps"]
        return Trajectory(tuple(_step(index, step) for index, step in enumerate(steps, 1)), str(record["log"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Trajectory(damaged=f"{type(error).__name__}: {error}")


def _step(index: int, step: dict[str, Any]) -> TrajectoryStep:
    number = step.get("step")
    return TrajectoryStep(
        number if isinstance(number, int) else index,
        str(step.get("tool", "")),
        str(step.get("command", "")),
        str(step.get("observation", "")),
    )


def _deed(step: TrajectoryStep) -> tuple[str, str, str]:
    """What the agent did; what it said, where the step is a message and nothing came of it."""
    return step.tool, step.command, step.observation if step.tool == MESSAGE else ""


def page_start(step: int) -> int:
    """The first step of the page that holds ``step``; a link to a step and scrolling cut the same pages."""
    return (max(step, 1) - 1) // PAGE_SIZE * PAGE_SIZE + 1


def step_page(steps: Sequence[TrajectoryStep], start: int) -> StepPage:
    """The page that begins at step ``start`` (counted from 1, in order of the trajectory)."""
    first = min(max(start, 1), max(len(steps), 1)) - 1
    end = first + PAGE_SIZE
    return StepPage(
        steps[first:end],
        len(steps),
        max(1, first + 1 - PAGE_SIZE) if first > 0 else None,
        end + 1 if end < len(steps) else None,
    )


def find(steps: Sequence[TrajectoryStep], wanted: str) -> tuple[list[Hit], int]:
    """The first hits of ``wanted`` (case does not matter), one per step and field, and how many there are in all."""
    if not wanted:
        return [], 0
    pattern = re.compile(re.escape(wanted), re.IGNORECASE)
    hits: list[Hit] = []
    total = 0
    for number, step in enumerate(steps, 1):
        for where in ("tool", "command", "observation"):
            text = getattr(step, where)
            match = pattern.search(text)
            if match is None:
                continue
            total += 1
            if len(hits) < MOST_HITS:
                hits.append(_hit(number, where, text, *match.span()))
    return hits, total


def _hit(number: int, where: str, text: str, at: int, end: int) -> Hit:
    start = max(0, at - _AROUND)
    before = ("\u2026" if start else "") + text[start:at]
    after = text[end : end + _AROUND] + ("\u2026" if end + _AROUND < len(text) else "")
    return Hit(number, where, *(visible(part.replace("\n", " ")) for part in (before, text[at:end], after)))


def compare(left: Sequence[TrajectoryStep], right: Sequence[TrajectoryStep]) -> Comparison:
    """Put two trajectories side by side, step by step."""
    pairs = []
    for index in range(max(len(left), len(right))):
        one = left[index] if index < len(left) else None
        other = right[index] if index < len(right) else None
        pairs.append(Pair(index + 1, one, other, _likeness(one, other)))
    action = next((pair.number for pair in pairs if pair.likeness in ("action", "left", "right")), None)
    observation = next((pair.number for pair in pairs if pair.likeness == "observation"), None)
    return Comparison(pairs, action, observation)


def _likeness(left: TrajectoryStep | None, right: TrajectoryStep | None) -> Likeness:
    if left is None:
        return "right"
    if right is None:
        return "left"
    if _deed(left) != _deed(right):
        return "action"
    return "same" if left.observation == right.observation else "observation"
