"""Where a run and its checkpoints lie, at which Task it begins, and how long it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

from relaxforge.cli.config import Config
from relaxforge.core.errors import ConfigError
from relaxforge.runs.checkpoint import RunState
from relaxforge.runs.feed import TaskFeed
from relaxforge.tasks.dataset import Dataset
from relaxforge.tasks.source import TaskSource
from relaxforge.train.schedule import with_horizon


def run_path(config: Config) -> Path:
    """The run directory: named, or that of the checkpoint to resume, or a new one named after the run file."""
    if config.run.run_dir is not None:
        return Path(config.run.run_dir)
    if config.run.resume == "latest":
        raise ConfigError("--resume latest needs --run-dir, the folder of the run to go on with")
    if config.run.resume is not None and config.run.save is None:
        return Path(config.run.resume).resolve().parent.parent
    return Path("runs") / f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{name_of(config.run_file)}"


def name_of(run_file: str | None) -> str:
    """What to call a run: its run file, or the folder of a run file that is called just run.toml."""
    if run_file is None:
        return "run"
    path = Path(run_file)
    return path.parent.name if path.stem.lower() == "run" else path.stem


def checkpoints_of(config: Config, run_dir: Path) -> Path:
    return Path(config.run.save) if config.run.save else run_dir / "checkpoints"


def feed_of(config: Config, training: Dataset, state: RunState | None) -> TaskFeed:
    """Tasks from the start of the dataset, or from where ``state`` was saved. Errors: ``TaskError``."""
    feed = TaskFeed(TaskSource(training, shuffle=config.data.rollout_shuffle, seed=config.rollout.rollout_seed))
    if state is not None:
        feed.restore(state.position, state.unconsumed)
    return feed


def steps_of(config: Config, tasks: int) -> int:
    """Rollout steps of the run: as asked for, or enough to pass ``tasks`` rows ``--num-epoch`` times."""
    if config.run.num_rollout is not None:
        return config.run.num_rollout
    return -(-(config.run.num_epoch or 1) * tasks // config.rollout.rollout_batch_size)


def with_schedule(config: Config, tasks: int) -> Config:
    """``config`` with a learning rate that decays over the whole run, unless it says otherwise. Errors: as there."""
    rollout = config.rollout
    sessions = rollout.rollout_batch_size * rollout.n_samples_per_prompt
    return replace(config, train=with_horizon(config.train, steps_of(config, tasks), sessions))


def schedule_words(config: Config) -> str | None:
    """What a decaying learning rate does, for people; ``None`` for a constant one."""
    train = config.train
    if train.lr_decay_style == "constant":
        return None
    return f"learning rate: {train.lr_decay_style} to {train.min_lr:g} at optimiser step {train.lr_decay_iters}"
