"""The loop of a Run, with agents inside the test: what it trains, saves and evaluates, and how it resumes."""

import asyncio
import json
from pathlib import Path

import pytest
from agents_inside import Stage, good, leave
from rollout_parts import HeardEngine, ask, run, says, user

from relaxforge.core.errors import CircuitOpen
from relaxforge.core.samples import TrainReport
from relaxforge.core.turns import WeightUpdate
from relaxforge.observe.metrics import MetricWriter
from relaxforge.observe.progress import LineProgress
from relaxforge.rollout.config import RolloutConfig
from relaxforge.runs.checkpoint import complete_checkpoints, read_state
from relaxforge.runs.config import RunConfig
from relaxforge.runs.directory import open_run_directory
from relaxforge.runs.feed import TaskFeed
from relaxforge.runs.training import RunLoop, RunParts
from relaxforge.tasks.dataset import Dataset
from relaxforge.tasks.rows import RowShape
from relaxforge.tasks.source import TaskSource

ROWS = 7


class Learner:
    """The learner's port over a counter in place of weights."""

    def __init__(self, version=0):
        self.version = version
        self.batches = []

    async def train(self, batch):
        self.batches.append(batch)
        self.version += 1
        return TrainReport(batch.rollout_id, self.version, {"train/loss": 0.5})

    async def publish(self, directory):
        return WeightUpdate(self.version, directory)

    async def save(self, directory):
        (Path(directory) / "weights").write_text(str(self.version))

    async def close(self):
        pass


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"metadata": {"n": n}}) + "\n" for n in range(ROWS)))
    return path


class Program:
    """One Run as ``cli`` would build it, over a folder."""

    def __init__(self, folder, rows, renderer, agent=good, *, steps=3, run=None, rollout=None, held_out=False):
        self.folder, self.rows, self.renderer, self.agent = folder, rows, renderer, agent
        self.steps, self.held_out = steps, held_out
        self.config = run or RunConfig(save_interval=1, eval_interval=None)
        self.rollout = rollout or RolloutConfig(rollout_batch_size=2, n_samples_per_prompt=2)
        self.stop = asyncio.Event()
        self.learner = Learner()

    async def go(self, resume=False):
        with open_run_directory(self.folder, "") as directory:
            engine = HeardEngine(self.renderer, says("a", "b", cycle=True))
            stage = Stage(directory.sessions, self.renderer, engine, self.agent, incarnation=directory.incarnation)
            feed = TaskFeed(TaskSource(Dataset(self.rows, RowShape()), shuffle=True, seed=1))
            first = 0
            if resume:
                state = read_state(complete_checkpoints(directory.checkpoints)[-1])
                feed.restore(state.position, state.unconsumed)
                stage.conductor.number_from(state.next_group)
                self.learner.version = state.weight_version
                first = state.next_rollout
            held_out = {"sums": TaskSource(Dataset(self.rows, RowShape()))} if self.held_out else {}
            parts = RunParts(
                directory, self.config, self.rollout, self.steps, stage.conductor, engine, self.learner, feed, held_out,
                MetricWriter(self.folder / "metrics.jsonl", incarnation=directory.incarnation), LineProgress(),
                self.folder / "weights", directory.checkpoints, self.stop,
            )  # fmt: skip
            stopped = await RunLoop(parts, first).run()
            assert not stage.runner.running
            return stopped

    def lines(self, name):
        path = self.folder / "rollouts" / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().split("\n") if line]

    def metrics(self, kind):
        rows = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        return [row for row in rows if row["kind"] == kind]


@pytest.fixture
def program(tmp_path, rows, renderer):
    def build(name="run", **rest):
        return Program(tmp_path / name, rows, renderer, **rest)

    return build


def trained(program):
    """(task, group) of every Group that was trained, step by step."""
    sound = ([line for line in program.lines(step) if line["status"] == "completed"] for step in range(program.steps))
    return [sorted({(line["task_index"], line["group_id"]) for line in lines}) for lines in sound]


def test_every_step_trains_its_groups_and_the_next_one_samples_from_the_new_weights(program):
    here = program()
    assert run(here.go()) is False
    assert [batch.rollout_id for batch in here.learner.batches] == [0, 1, 2]
    for step, batch in enumerate(here.learner.batches):
        assert [group.group_id for group in batch.groups] == [f"train-g{2 * step:06d}", f"train-g{2 * step + 1:06d}"]
        versions = {s.version for group in batch.groups for segment in group.segments for s in segment.versions}
        assert versions == {step}
    assert [row["train/loss"] for row in here.metrics("step")] == [0.5] * 3
    assert {"rollout/raw_reward", "perf/step_time", "perf/rollout_time", "perf/train_time", "tokens/sampled"} <= set(
        here.metrics("step")[0]
    )


def test_a_resumed_run_goes_on_where_the_checkpoint_was_written(program):
    whole, parts = program("whole", steps=4), program("parts", steps=2)
    run(whole.go())
    run(parts.go())
    parts.steps = 4
    run(parts.go(resume=True))
    assert trained(parts) == trained(whole)
    assert [line["incarnation"] for step in range(4) for line in parts.lines(step)] == [0] * 8 + [1] * 8
    assert parts.learner.version == 4
    resumed = parts.learner.batches[2]
    assert {s.version for group in resumed.groups for segment in group.segments for s in segment.versions} == {2}
    assert [path.name for path in complete_checkpoints(parts.folder / "checkpoints")] == ["step_3", "step_4"]


def test_tasks_of_surplus_groups_come_first_after_a_resume(program):
    rollout = RolloutConfig(rollout_batch_size=1, over_sampling_batch_size=3, n_samples_per_prompt=1)
    first_done = {"train-g000000"}

    async def agent(session, launch):
        if session.identity.group_id not in first_done:
            await ask(session, user("q"))
            await asyncio.Event().wait()
        await good(session, launch)

    here = program(agent=agent, rollout=rollout, steps=1)
    run(here.go())
    state = read_state(complete_checkpoints(here.folder / "checkpoints")[-1])
    surplus = [line["task_index"] for line in here.lines(0) if line["drop_reason"] == "surplus"]
    assert sorted(state.unconsumed) == sorted(surplus)
    assert len(surplus) == 2
    first_done.add(f"train-g{state.next_group:06d}")
    here.steps = 2
    run(here.go(resume=True))
    assert [line["task_index"] for line in here.lines(1) if line["status"] == "completed"] == state.unconsumed[:1]


def test_a_stop_ends_the_run_after_the_step_with_a_checkpoint(program):
    async def agent(session, launch):
        here.stop.set()
        await good(session, launch)

    here = program(agent=agent, run=RunConfig(save_interval=None))
    assert run(here.go()) is True
    assert len(here.metrics("step")) == 1
    assert [path.name for path in complete_checkpoints(here.folder / "checkpoints")] == ["step_1"]


@pytest.mark.parametrize(("when", "evaluations"), [("start", []), (1, [0]), (3, [0, 1, 2])])
def test_a_stop_leaves_out_the_evaluations_that_are_to_come(program, when, evaluations):
    async def agent(session, launch):
        if session.identity.mode == "train" and len(here.learner.batches) + 1 == when:
            here.stop.set()
        await good(session, launch)

    here = program(agent=agent, run=RunConfig(eval_interval=1), held_out=True)
    if when == "start":
        here.stop.set()
    assert run(here.go()) is True
    steps = 0 if when == "start" else when
    found = here.metrics("eval") + here.metrics("step") if steps else []
    assert [row["rollout_id"] for row in found] == [*evaluations, *range(steps)]
    assert [path.name for path in complete_checkpoints(here.folder / "checkpoints")] == [f"step_{steps}"] * (steps > 0)


def test_a_run_that_trips_keeps_its_evidence_and_its_last_checkpoint(program):
    async def agent(session, launch):
        await ask(session, user("q"))
        leave(launch, {"reward": 1.0})
        return 3 if session.identity.group_id > "train-g000001" else 0

    here = program(agent=agent, rollout=RolloutConfig(2, 2, max_consecutive_failed_groups=3))
    with pytest.raises(CircuitOpen, match="agent_error"):
        run(here.go())
    assert [path.name for path in complete_checkpoints(here.folder / "checkpoints")] == ["step_1"]
    assert {line["status"] for line in here.lines(1)} <= {"failed", "dropped"}
    assert len(here.metrics("step")) == 1


def test_evaluations_run_before_between_and_after_and_count_failures(program):
    async def agent(session, launch):
        await good(session, launch)
        return 3 if session.identity.mode == "eval" and session.identity.task.index == 0 else 0

    here = program(agent=agent, run=RunConfig(eval_interval=2), held_out=True)
    run(here.go())
    evaluations = here.metrics("eval")
    assert [row["rollout_id"] for row in evaluations] == [0, 2, 3]
    for row in evaluations:
        assert row["eval/sums/attempted"] == ROWS
        assert row["eval/sums/accuracy"] == pytest.approx((ROWS - 1) / ROWS)
        assert row["eval/sums/failures/agent_error"] == 1.0
        lines = here.lines(f"eval_sums_{row['rollout_id']}")
        assert sorted(line["task_index"] for line in lines) == list(range(ROWS))
        assert {line["mode"] for line in lines} == {"eval"}
        assert all(line["tokens"]["sampled"] > 0 for line in lines)
    assert len(here.learner.batches) == 3


def test_the_first_evaluation_can_be_left_out(program):
    here = program(run=RunConfig(eval_interval=1, skip_eval_before_train=True), held_out=True, steps=1)
    run(here.go())
    assert [row["rollout_id"] for row in here.metrics("eval")] == [1]


def test_without_a_learner_nothing_is_trained_or_saved(program):
    here = program(steps=2)
    here.learner = None
    run(here.go())
    assert len(here.metrics("step")) == 2
    assert complete_checkpoints(here.folder / "checkpoints") == []
    assert all(line["tokens"]["trained"] > 0 for line in here.lines(1))
