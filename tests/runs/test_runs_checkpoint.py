"""Checkpoints are complete or absent, whatever happens while one is written."""

import asyncio
import json
from pathlib import Path

import pytest

from relaxforge.core.errors import ConfigError, StorageError, TrainError
from relaxforge.runs.checkpoint import (
    RunState,
    complete_checkpoints,
    find_checkpoint,
    prepare_folder,
    read_state,
    write_checkpoint,
)


class Learner:
    """The part of the learner's port that a checkpoint needs; its weights are one number."""

    def __init__(self, weights=1, error=None):
        self.weights = weights
        self._error = error

    async def save(self, directory):
        (Path(directory) / "optimiser").mkdir()
        (Path(directory) / "optimiser" / "state.bin").write_bytes(b"m" * 100)
        (Path(directory) / "model.safetensors").write_text(str(self.weights))
        if self._error is not None:
            raise self._error


def state(step, **rest):
    return RunState(step, {"epoch": 0, "index": 3, "size": 7}, next_group=5, weight_version=step, **rest)


def write(folder, step, learner=None, keep=2, **rest):
    return asyncio.run(write_checkpoint(folder, state(step, **rest), learner or Learner(), keep))


def names(folder):
    return [path.name for path in complete_checkpoints(folder)]


def test_a_checkpoint_holds_everything_and_is_read_as_it_was_written(tmp_path):
    path = write(tmp_path, 3, Learner(42), unconsumed=[4, 1])
    assert path == tmp_path / "step_3"
    assert (path / "model.safetensors").read_text() == "42"
    assert (path / "optimiser" / "state.bin").exists()
    read = read_state(path)
    assert (read.next_rollout, read.position, read.next_group) == (3, {"epoch": 0, "index": 3, "size": 7}, 5)
    assert (read.weight_version, read.unconsumed) == (3, [4, 1])


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_checkpoints_stay(tmp_path, keep):
    for step in (1, 2, 9, 10, 11):
        write(tmp_path, step, keep=keep)
    assert names(tmp_path) == ["step_9", "step_10", "step_11"][-keep:]
    assert {path.name for path in tmp_path.iterdir()} == set(names(tmp_path))
    assert find_checkpoint("latest", tmp_path).name == "step_11"


def test_after_a_resume_from_an_older_step_what_is_saved_last_is_the_latest(tmp_path):
    """Otherwise the new checkpoint would be pruned at once, and ``latest`` would be of a future that never comes."""
    for step in (2, 6, 8):
        write(tmp_path, step, keep=3)
    write(tmp_path, 4, keep=2)
    assert names(tmp_path) == ["step_8", "step_4"]
    assert find_checkpoint("latest", tmp_path).name == "step_4"


@pytest.mark.parametrize("error", [TrainError("the trainer died"), OSError(28, "No space left on device")])
def test_a_save_that_fails_leaves_the_earlier_checkpoints_and_no_half_one(tmp_path, error):
    write(tmp_path, 1)
    expected = TrainError if isinstance(error, TrainError) else StorageError
    with pytest.raises(expected, match=r"trainer died|step_2 cannot be written: No space left"):
        write(tmp_path, 2, Learner(error=error))
    assert names(tmp_path) == ["step_1"]
    write(tmp_path, 3)
    assert {path.name for path in tmp_path.iterdir()} == {"step_1", "step_3"}


def test_the_same_step_saved_again_replaces_the_first(tmp_path):
    write(tmp_path, 1, Learner("old"))
    write(tmp_path, 1, Learner("new"))
    assert (tmp_path / "step_1" / "model.safetensors").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["step_1"]


def test_what_a_killed_run_left_behind_is_no_checkpoint_and_is_swept(tmp_path):
    write(tmp_path, 1)
    for name in (".step_2.unfinished", ".step_0.discarded"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run_state.json").write_text((tmp_path / "step_1" / "run_state.json").read_text())
    assert names(tmp_path) == ["step_1"]
    write(tmp_path, 3)
    assert {path.name for path in tmp_path.iterdir()} == {"step_1", "step_3"}


def test_a_checkpoint_is_removed_under_another_name(tmp_path, monkeypatch):
    """A run that is killed while it removes an old checkpoint must not leave one that looks complete."""
    write(tmp_path, 1)

    def killed(path, *args, **kwargs):
        raise OSError(4, "killed here")

    monkeypatch.setattr("relaxforge.runs.checkpoint.shutil.rmtree", killed)
    with pytest.raises(StorageError):
        write(tmp_path, 2, keep=1)
    assert names(tmp_path) == ["step_2"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"next_rollout": 1}',
        '{"next_rollout": "1", "position": {}, "next_group": 0, "weight_version": 0}',
        '{"next_rollout": -1, "position": {}, "next_group": 0, "weight_version": 0}',
        '{"next_rollout": 1, "position": {"index": -1}, "next_group": 0, "weight_version": 0}',
    ],
)
def test_a_state_that_is_not_readable_is_a_configuration_error_and_no_complete_checkpoint(tmp_path, content):
    damaged = write(tmp_path, 1)
    (damaged / "run_state.json").write_text(content)
    with pytest.raises(ConfigError, match=r"--resume .*step_1: run_state.json is not readable"):
        read_state(damaged)
    assert names(tmp_path) == []
    assert write(tmp_path, 2).name == "step_2"
    assert (find_checkpoint("latest", tmp_path).name, damaged.exists()) == ("step_2", True)


def test_a_checkpoint_of_an_earlier_release_is_still_read(tmp_path):
    path = write(tmp_path, 1)
    values = json.loads((path / "run_state.json").read_text())
    del values["sequence"]
    (path / "run_state.json").write_text(json.dumps(values))
    assert read_state(path).sequence == 0


def test_resume_names_a_complete_checkpoint_or_says_what_is_missing(tmp_path):
    with pytest.raises(ConfigError, match="has no complete checkpoint; leave --resume out"):
        find_checkpoint("latest", tmp_path)
    with pytest.raises(ConfigError, match=r"no complete checkpoint there \(run_state.json is missing\)"):
        find_checkpoint(str(tmp_path), tmp_path)
    path = write(tmp_path, 1)
    assert find_checkpoint(str(path), tmp_path) == path
    (tmp_path / "step_notes").mkdir()
    assert find_checkpoint("latest", tmp_path) == path


@pytest.mark.parametrize("error", [StorageError("full"), TrainError("killed")])
def test_half_a_checkpoint_does_not_stay_on_the_disk(tmp_path, error):
    with pytest.raises(type(error)):
        write(tmp_path, 1, Learner(error=error))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_checkpoint_is_found_before_anything_is_trained(tmp_path):
    prepare_folder(tmp_path / "deep" / "checkpoints")
    assert list((tmp_path / "deep" / "checkpoints").iterdir()) == []
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/checkpoints")):
        with pytest.raises(ConfigError, match=f"--save {path}: checkpoints cannot be written there"):
            prepare_folder(path)
