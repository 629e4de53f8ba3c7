"""What a worker may run, how much at once, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass

from relaxforge.core.errors import ConfigError

LONGEST_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Worker: takes evaluation jobs from the database and runs their Trials on this machine."""

    work_dir: str = "worker"
    """Folder for bundles, Session folders and evidence that is not in the database yet. One below it per process."""

    concurrency: int = 8
    """Trials at the same time; an evaluator configuration may ask for fewer."""

    allow_model: tuple[str, ...] = ("tiny", "smollm2")
    """Models that jobs may load, by the name or folder that their configuration gives."""

    allow_upstream: tuple[str, ...] = ()
    """Base URLs of hosted models that jobs may call. Empty: none."""

    lease: float = 60.0
    """Seconds after which the job of a worker that shows no sign of life goes to another one."""

    poll: float = 1.5
    """Seconds between two looks for a job when none was announced."""

    grace: float = 60.0
    """Seconds that Trials under way may go on after SIGTERM."""

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= 1024:
            raise ConfigError(f"--concurrency must be between 1 and 1024 Trials, got {self.concurrency}")
        for name, least in (("lease", 3.0), ("poll", 0.05), ("grace", 0.0)):
            value = getattr(self, name)
            if not least <= value <= LONGEST_S:
                raise ConfigError(f"--{name} must be between {least:g} and {LONGEST_S:g} seconds, got {value}")
