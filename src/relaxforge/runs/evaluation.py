"""Evaluation inside a Run: the same pipeline with another ending. One dataset after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from relaxforge.core.ports import TrialSink
from relaxforge.observe.progress import StepProgress
from relaxforge.rollout.conductor import Conductor
from relaxforge.rollout.config import RolloutConfig
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.scheduler import Plan
from relaxforge.rollout.step import StepOrder
from relaxforge.runs.directory import RunDirectory
from relaxforge.runs.metrics import eval_metrics
from relaxforge.tasks.source import TaskSource


async def evaluate(
    name: str,
    source: TaskSource,
    rollout_id: int,
    *,
    conductor: Conductor,
    config: RolloutConfig,
    directory: RunDirectory,
    open_sink: Callable[[str], TrialSink],
    progress: StepProgress,
) -> dict[str, float]:
    """Run every Task of ``source`` ``--n-samples-per-eval-prompt`` times and return the metrics.

    Every Session is a Group of its own, so one that fails costs no other. Failed ones stay in the count.
    """
    samples = config.n_samples_per_eval_prompt
    tasks = [source[index] for index in range(len(source)) for _ in range(samples)]
    queue = iter(tasks)
    by_task: defaultdict[int, list[Outcome]] = defaultdict(list)
    sink = open_sink(f"eval_{name}_{rollout_id}")

    def keep(outcome: Outcome) -> None:
        by_task[outcome.session.identity.task.index].append(outcome)
        sink.append(directory.line(outcome, rollout_id))

    capacity = config.resident_eval_groups * samples
    order = StepOrder(
        rollout_id=rollout_id,
        mode="eval",
        plan=Plan(quota=len(tasks), started=len(tasks), capacity=capacity, replace_lost=False),
        group_size=1,
        take=lambda: next(queue),
        keep=keep,
    )
    progress.begin(f"eval {name} after {rollout_id} steps", len(tasks))
    try:
        await conductor.run(order)
    finally:
        sink.close()
        progress.end()
    return eval_metrics(name, by_task, samples)
