"""Numbers over time: metrics.jsonl always, TensorBoard where it is installed, Weights & Biases when asked for.

All three use the same names. ``docs/metrics.md`` says what each name means.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.observe.config import ObserveConfig
from relaxforge.observe.lines import LineFile
from relaxforge.observe.log import get_logger

Kind = Literal["step", "eval"]

log = get_logger()


class Tracker(Protocol):
    """A further reader of metrics."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class MetricWriter:
    """Writes one object per rollout step and per evaluation.

    ``incarnation`` counts restarts of the run, so that a step repeated after a resume stands beside its first attempt.
    Values that are not finite become null in the file and are left out of the trackers. Errors: ``StorageError``.
    """

    def __init__(self, path: Path, trackers: tuple[Tracker, ...] = (), *, incarnation: int = 0) -> None:
        self._path = path
        self._trackers = trackers
        self._incarnation = incarnation

    def write(self, kind: Kind, rollout_id: int, metrics: Mapping[str, float]) -> None:
        row = {
            "kind": kind,
            "rollout_id": rollout_id,
            "incarnation": self._incarnation,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **{name: value if math.isfinite(value) else None for name, value in metrics.items()},
        }
        with _storage(self._path), closing(LineFile(self._path)) as file:
            file.append(json.dumps(row, ensure_ascii=False).encode())
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        for tracker in self._trackers:
            tracker.log(rollout_id, finite)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()


@contextmanager
def _storage(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}; free some space and resume") from error


def open_metrics(
    config: ObserveConfig, run_dir: Path, run_config: Mapping[str, Any] | None = None, *, incarnation: int = 0
) -> MetricWriter:
    """The metric writer of a run in ``run_dir``. Errors: ``ConfigError`` when an asked-for tracker is not installed.

    ``run_config`` is what a tracker shows as the configuration of the run; secrets must be redacted already.
    """
    trackers: list[Tracker] = []
    if config.tensorboard and (tensorboard := _tensorboard(run_dir / "tensorboard")):
        trackers.append(tensorboard)
    if config.use_wandb:
        trackers.append(WandbTracker(config, run_dir, dict(run_config or {})))
    return MetricWriter(run_dir / "metrics.jsonl", tuple(trackers), incarnation=incarnation)


def _tensorboard(folder: Path) -> Tracker | None:
    try:
        return TensorBoardTracker(folder)
    except ImportError:
        log.warning("tensorboard_missing", hint="pip install tensorboard, or say --no-tensorboard")
        return None


class TensorBoardTracker:
    """An event file in TensorBoard's own format, which needs no torch.

    Written here and not by its ``Writer``: that one writes in a thread, where a full disk ends in a traceback.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._path = folder / f"events.out.tfevents.{time.time_ns() // 10**9}.{socket.gethostname()}.{os.getpid()}"
        with _storage(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab")
        self._records = RecordWriter(self._file)
        self._write(file_version="brain.Event:2")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._write(step=step, summary=self._summary(value=values))

    def close(self) -> None:
        with suppress(OSError):  # What could not be written has ended the run already, and that is what counts.
            self._file.close()

    def _write(self, **event: Any) -> None:
        with _storage(self._path):
            self._records.write(self._event(wall_time=time.time(), **event).SerializeToString())
            self._file.flush()


class WandbTracker:
    def __init__(self, config: ObserveConfig, run_dir: Path, run_config: dict[str, Any]) -> None:
        # Its own settings come from the environment of the caller, as with any other use of wandb.
        os.environ.setdefault("WANDB_SILENT", "true")
        try:
            import wandb
        except ImportError:
            raise ConfigError(
                "--use-wandb: wandb is missing; install it with: pip install 'relaxforge[wandb]'"
            ) from None
        self._run = wandb.init(
            project=config.wandb_project, name=run_dir.name, dir=str(run_dir), mode=config.wandb_mode, config=run_config
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()
