import json
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.observe.config import ObserveConfig
from relaxforge.observe.metrics import MetricWriter, open_metrics


def rows(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def test_each_step_and_each_evaluation_is_one_object(tmp_path):
    metrics = open_metrics(ObserveConfig(tensorboard=False), tmp_path, incarnation=1)
    metrics.write("eval", 0, {"eval/heldout/accuracy": 0.25})
    metrics.write("step", 0, {"rollout/raw_reward": 0.5})
    metrics.close()
    assert [(row["kind"], row["rollout_id"], row["incarnation"]) for row in rows(tmp_path)] == [
        ("eval", 0, 1),
        ("step", 0, 1),
    ]
    assert rows(tmp_path)[1]["rollout/raw_reward"] == 0.5


def test_half_a_line_that_a_killed_run_left_is_cut_off(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"rollout_id": 0}\n{"rollou')
    MetricWriter(tmp_path / "metrics.jsonl").write("step", 1, {})
    assert [row["rollout_id"] for row in rows(tmp_path)] == [0, 1]


def test_a_tensorboard_folder_that_cannot_be_written_is_a_storage_error(tmp_path):
    (tmp_path / "tensorboard").write_text("a file")
    with pytest.raises(StorageError, match=r"tensorboard/events.* cannot be written: File exists"):
        open_metrics(ObserveConfig(), tmp_path)


def test_a_disk_that_is_full_for_tensorboard_is_a_storage_error_and_nothing_else(tmp_path):
    """The limit on file sizes stands in for the disk."""
    program = (
        "import pathlib, resource, signal, sys\n"
        "from relaxforge.core.errors import StorageError\n"
        "from relaxforge.observe.metrics import TensorBoardTracker\n"
        "tracker = TensorBoardTracker(pathlib.Path(sys.argv[1]))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    tracker.log(0, {'train/loss': 0.25, 'train/entropy': 1.0})\n"
        "except StorageError as error:\n"
        "    print(error)\n"
        "tracker.close()\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "events.out.tfevents" in ran.stdout
    assert "cannot be written: File too large" in ran.stdout
    assert ran.stderr == ""


def test_values_that_are_not_finite_become_null(tmp_path):
    MetricWriter(tmp_path / "metrics.jsonl").write("step", 0, {"a": float("nan"), "b": float("inf"), "c": 1})
    assert [rows(tmp_path)[0][name] for name in "abc"] == [None, None, 1]


def scalars(folder):
    """(tag, step, value) of every scalar in a TensorBoard folder, read with TensorBoard's own loader."""
    return [
        (value.tag, event.step, pytest.approx(value.tensor.float_val[0]))
        for file in sorted(Path(folder).iterdir())
        for event in EventFileLoader(str(file)).Load()
        for value in event.summary.value
    ]


def test_tensorboard_gets_the_same_names(tmp_path):
    metrics = open_metrics(ObserveConfig(), tmp_path)
    metrics.write("step", 3, {"train/loss": 0.25, "train/kl_loss": float("nan")})
    metrics.close()
    assert scalars(tmp_path / "tensorboard") == [("train/loss", 3, 0.25)]


def test_tensorboard_is_written_without_torch(tmp_path):
    program = (
        "import sys, pathlib\n"
        "from relaxforge.observe.config import ObserveConfig\n"
        "from relaxforge.observe.metrics import open_metrics\n"
        "m = open_metrics(ObserveConfig(), pathlib.Path(sys.argv[1]))\n"
        "m.write('step', 0, {'a': 1.0}); m.close()\n"
        "print(sorted({'torch', 'tensorflow', 'transformers'} & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
    assert any((tmp_path / "tensorboard").iterdir())


def test_a_missing_wandb_is_a_configuration_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"--use-wandb: wandb is missing; install it with: .*relaxforge\[wandb\]"):
        open_metrics(ObserveConfig(tensorboard=False, use_wandb=True), tmp_path)


def test_a_missing_tensorboard_does_not_stop_a_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    metrics = open_metrics(ObserveConfig(), tmp_path)
    metrics.write("step", 0, {"a": 1.0})
    assert rows(tmp_path)[0]["a"] == 1.0


def test_a_full_disk_is_a_storage_error():
    with pytest.raises(StorageError, match="/dev/full cannot be written: No space left"):
        MetricWriter(Path("/dev/full")).write("step", 0, {"a": 1.0})
