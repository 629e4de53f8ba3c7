"""The loop of a Run: evaluate, roll out, train, publish, save. Without a learner it is ``relaxforge rollout``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relaxforge.core.ports import Engine, Learner, TrialSink
from relaxforge.core.samples import TrainBatch
from relaxforge.observe.clock import Stopwatch
from relaxforge.observe.log import bound, get_logger
from relaxforge.observe.metrics import MetricWriter
from relaxforge.observe.progress import StepProgress
from relaxforge.rollout.conductor import Conductor
from relaxforge.rollout.config import RolloutConfig
from relaxforge.rollout.scheduler import Plan
from relaxforge.rollout.step import ScoredGroup, StepOrder, StepSummary
from relaxforge.runs.checkpoint import RunState, write_checkpoint
from relaxforge.runs.config import RunConfig
from relaxforge.runs.directory import FileSink, RunDirectory
from relaxforge.runs.evaluation import evaluate
from relaxforge.runs.feed import TaskFeed
from relaxforge.runs.metrics import passrate_metrics, rollout_metrics
from relaxforge.tasks.source import TaskSource

log = get_logger()


@dataclass(frozen=True, slots=True)
class RunParts:
    """What the loop works with; ``cli`` builds it. Without ``learner`` nothing is trained.

    ``weights_dir`` is where published weights lie for the engine (memory-backed where there is such a folder).
    ``stop`` asks for an orderly end after the current step.
    """

    directory: RunDirectory
    run: RunConfig
    rollout: RolloutConfig
    steps: int
    conductor: Conductor
    engine: Engine
    learner: Learner | None
    feed: TaskFeed
    held_out: Mapping[str, TaskSource]
    metrics: MetricWriter
    progress: StepProgress
    weights_dir: Path
    checkpoints: Path
    stop: asyncio.Event
    log_passrate: bool = False


class RunLoop:
    """Runs steps ``first`` to ``steps`` - 1; ``first`` is above 0 after a resume."""

    def __init__(self, parts: RunParts, first: int = 0) -> None:
        self._parts = parts
        self._first = first
        self._version = 0
        self._saved_at: int | None = None

    async def run(self) -> bool:
        """The whole Run. Returns whether it was stopped early. Errors: any ``RelaxForgeError``."""
        parts = self._parts
        if self._first:
            await self._publish()
        done = self._first
        for rollout_id in range(self._first, parts.steps):
            if self._evaluates_before(rollout_id) and not parts.stop.is_set():
                await self._evaluate(rollout_id)
            if parts.stop.is_set():
                break
            with bound(rollout=rollout_id):
                await self._step(rollout_id)
            done = rollout_id + 1
            if parts.run.save_interval is not None and done % parts.run.save_interval == 0:
                await self._save(done)
        if done > self._first:
            await self._save(done)
        if done < parts.steps:
            return True
        if parts.held_out and parts.run.eval_interval is not None:
            if parts.stop.is_set():
                return True
            await self._evaluate(parts.steps)
        return False

    def _evaluates_before(self, rollout_id: int) -> bool:
        interval = self._parts.run.eval_interval
        if not self._parts.held_out or interval is None or rollout_id % interval:
            return False
        return rollout_id > 0 or not self._parts.run.skip_eval_before_train

    async def _evaluate(self, rollout_id: int) -> None:
        parts = self._parts
        metrics: dict[str, float] = {}
        for name, source in parts.held_out.items():
            metrics |= await evaluate(
                name, source, rollout_id, conductor=parts.conductor, config=parts.rollout, directory=parts.directory,
                open_sink=self._sink, progress=parts.progress,
            )  # fmt: skip
        parts.metrics.write("eval", rollout_id, metrics)

    async def _step(self, rollout_id: int) -> None:
        parts, watch = self._parts, Stopwatch()
        parts.progress.begin(
            f"step {rollout_id + 1}/{parts.steps}",
            parts.rollout.rollout_batch_size * parts.rollout.n_samples_per_prompt,
        )
        with watch.phase("rollout"):
            groups, summary = await self._roll_out(rollout_id)
        outcomes = [outcome for group in groups for outcome in group.outcomes]
        metrics = rollout_metrics(outcomes, summary)
        if parts.log_passrate:
            metrics |= passrate_metrics(group.outcomes for group in groups)
        if parts.learner is not None:
            parts.progress.phase("train")
            with watch.phase("train"):
                metrics |= await self._train(parts.learner, rollout_id, groups)
            parts.progress.phase("publish")
            with watch.phase("publish"):
                await self._publish()
        metrics |= {f"perf/{phase}_time": seconds for phase, seconds in watch.seconds.items()}
        metrics["perf/step_time"] = sum(watch.seconds.values())
        metrics["perf/tokens_per_s"] = summary.tokens["sampled"] / max(watch.seconds["rollout"], 1e-9)
        parts.metrics.write("step", rollout_id, metrics)
        parts.progress.end()

    async def _roll_out(self, rollout_id: int) -> tuple[list[ScoredGroup], StepSummary]:
        parts = self._parts
        config = parts.rollout
        sink = self._sink(str(rollout_id))
        transfer: asyncio.Queue[ScoredGroup] = asyncio.Queue(config.transfer_queue_groups or config.rollout_batch_size)

        order = StepOrder(
            rollout_id=rollout_id,
            mode="train",
            plan=Plan(
                quota=config.rollout_batch_size,
                started=config.started_groups,
                capacity=config.resident_groups,
                max_failures=config.max_consecutive_failed_groups,
                max_filtered=config.max_consecutive_filtered_groups,
            ),
            group_size=config.n_samples_per_prompt,
            take=parts.feed.take,
            keep=lambda outcome: sink.append(parts.directory.line(outcome, rollout_id)),
            give_back=parts.feed.give_back,
            transfer=transfer.put,
        )
        collecting = asyncio.create_task(_collect(transfer, config.rollout_batch_size))
        try:
            summary = await parts.conductor.run(order)
            return await collecting, summary
        finally:
            collecting.cancel()
            sink.close()

    async def _train(self, learner: Learner, rollout_id: int, groups: list[ScoredGroup]) -> dict[str, float]:
        samples = tuple(sorted((group.samples for group in groups), key=lambda group: group.group_id))
        report = await learner.train(TrainBatch(rollout_id, samples, self._parts.rollout.rollout_temperature))
        return report.metrics

    async def _publish(self) -> None:
        """Put the learner's weights into the engine; nothing is generated meanwhile."""
        parts = self._parts
        if parts.learner is None:
            return
        update = await parts.learner.publish(str(parts.weights_dir))
        self._version = update.version
        await parts.engine.pause()
        try:
            await parts.engine.load(update)
        finally:
            await parts.engine.resume()

    async def _save(self, next_rollout: int) -> None:
        parts = self._parts
        if parts.learner is None or self._saved_at == next_rollout:
            return
        parts.progress.phase("save")
        position, unconsumed = parts.feed.position()
        state = RunState(next_rollout, position, parts.conductor.next_number, self._version, unconsumed)
        path = await write_checkpoint(parts.checkpoints, state, parts.learner, parts.run.save_keep)
        self._saved_at = next_rollout
        log.info("checkpoint_written", path=str(path))

    def _sink(self, name: str) -> TrialSink:
        return FileSink(self._parts.directory.dump_path(name, self._parts.run.save_debug_rollout_data))


async def _collect(transfer: asyncio.Queue[ScoredGroup], count: int) -> list[ScoredGroup]:
    return [await transfer.get() for _ in range(count)]
