"""What a Run is: its model, its folder, how long it goes on and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from relaxforge.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RunConfig:
    model: str = "smollm2"
    """`smollm2` (packaged SmolLM2-135M-Instruct), `tiny` (random, for dry runs), a Hugging Face folder, or an id."""

    run_dir: str | None = None
    """Folder that keeps everything about the Run; None: `runs/<date>-<name>`."""

    num_rollout: int | None = None
    """Rollout steps; None: as many as --num-epoch gives."""

    num_epoch: int | None = None
    """Passes over the dataset, when --num-rollout is not given; None: 1."""

    eval_interval: int | None = None
    """Rollout steps between two evaluations; None: no evaluation. The last step is always followed by one."""

    skip_eval_before_train: bool = False
    """Leave out the evaluation of the untrained model."""

    save: str | None = None
    """Folder for checkpoints; None: `checkpoints` in the run folder."""

    save_interval: int | None = None
    """Rollout steps between two checkpoints; None: only at the end and on Ctrl-C."""

    save_keep: int = 2
    """Complete checkpoints to keep; older ones are removed after a newer one is complete."""

    resume: str | None = None
    """Checkpoint folder to go on from, or `latest` for the newest complete one of --run-dir; None: start anew."""

    save_debug_rollout_data: str | None = None
    """Path of the dump with `{rollout_id}` in it; None: `rollouts/{rollout_id}.jsonl` in the run folder."""

    def __post_init__(self) -> None:
        for name in ("num_rollout", "num_epoch", "eval_interval", "save_interval", "save_keep"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
        if self.save_debug_rollout_data is not None and "{rollout_id}" not in self.save_debug_rollout_data:
            raise ConfigError(
                "--save-debug-rollout-data must contain {rollout_id}, for example dump/{rollout_id}.jsonl"
            )
