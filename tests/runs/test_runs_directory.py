"""The run directory: one writer, one incarnation per start, whole lines only."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.runs.directory import FileSink, open_run_directory


def lines(path):
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def row(session_id, **rest):
    return {"session_id": session_id, **rest}


# The folder


def test_every_start_is_an_incarnation_with_its_own_configuration(tmp_path):
    path = tmp_path / "runs" / "first"
    for number in range(3):
        with open_run_directory(path, f"start = {number}\n") as directory:
            assert (directory.incarnation, directory.run_id) == (number, "first")
            assert {directory.sessions, directory.checkpoints, directory.logs} <= set(path.iterdir())
    assert (path / "config.toml").read_text() == "start = 0\n"
    assert (path / "config-2.toml").read_text() == "start = 2\n"
    assert (path / "sessions").stat().st_mode & 0o777 == 0o700


def test_a_second_run_in_the_same_folder_is_refused_and_changes_nothing(tmp_path):
    with open_run_directory(tmp_path, "first = 1\n"):
        refused = pytest.raises(ConfigError, match=r"another run is writing to .*choose another --run-dir")
        with refused, open_run_directory(tmp_path, "second = 1\n"):
            pytest.fail("two runs hold one lock")
        assert (tmp_path / "config.toml").read_text() == "first = 1\n"
        assert not (tmp_path / "config-1.toml").exists()


def test_the_lock_of_a_run_that_was_killed_is_free(tmp_path):
    holder = (
        "import os, sys, pathlib\n"
        "from relaxforge.runs.directory import open_run_directory\n"
        "with open_run_directory(pathlib.Path(sys.argv[1]), ''):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", holder, str(tmp_path)], check=False)
    assert killed.returncode == -9
    with open_run_directory(tmp_path, "") as directory:
        assert directory.incarnation == 1


def test_a_folder_that_cannot_be_made_is_said_to_be_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"), open_run_directory(tmp_path / "file" / "run", ""):
        pytest.fail("opened under a file")


@pytest.mark.parametrize("error", [TimeoutError("too slow"), ConnectionResetError("gone"), KeyError("x")])
def test_what_goes_wrong_inside_a_run_is_not_blamed_on_its_folder(tmp_path, error):
    with pytest.raises(type(error)), open_run_directory(tmp_path, ""):
        raise error


def test_dumps_go_to_the_run_or_where_the_pattern_says(tmp_path):
    with open_run_directory(tmp_path, "") as directory:
        assert directory.dump_path("3", None) == tmp_path / "rollouts" / "3.jsonl"
        assert directory.dump_path("eval_x_3", "/dump/{rollout_id}/all.jsonl") == Path("/dump/eval_x_3/all.jsonl")


# The file sink


def test_every_session_is_one_line_however_often_it_is_given(tmp_path):
    path = tmp_path / "deep" / "0.jsonl"
    sink = FileSink(path)
    for session_id in ("a", "b", "a"):
        sink.append(row(session_id, text="two\nlines \u2028 and é"))
    sink.close()
    assert [line["session_id"] for line in lines(path)] == ["a", "b"]
    assert len(path.read_bytes().split(b"\n")) == 3


def test_nothing_appended_leaves_no_file(tmp_path):
    FileSink(tmp_path / "0.jsonl").close()
    assert not (tmp_path / "0.jsonl").exists()


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (b'{"session_id":"old"}\n{"session_id":"to', ["old", "new"]),
        (b'{"session_id":"old"}\n', ["old", "new"]),
        (b'{"session_id":"to', ["new"]),
        (b"", ["new"]),
        (b'{"session_id":"old"}\n' + b"x" * 200_000, ["old", "new"]),
        (b"x" * 200_000, ["new"]),
        (b'{"session_id":"' + b"o" * 100_000 + b'"}\n{"t', ["o" * 100_000, "new"]),
    ],
)
def test_a_line_that_a_killed_run_left_half_written_is_cut_off(tmp_path, before, kept):
    path = tmp_path / "0.jsonl"
    path.write_bytes(before)
    sink = FileSink(path)
    sink.append(row("new"))
    sink.close()
    assert [line["session_id"] for line in lines(path)] == kept


def test_a_full_disk_is_a_storage_error_that_names_the_session_and_the_way_on():
    with pytest.raises(StorageError) as caught:
        FileSink(Path("/dev/full")).append(row("train-g000000-00"))
    assert "/dev/full cannot be written: No space left on device" in str(caught.value)
    assert "Session train-g000000-00 is not recorded" in str(caught.value)
    with pytest.raises(StorageError, match="Mend that and reset the evaluation run"):
        FileSink(Path("/dev/full"), "reset the evaluation run").append(row("eval-g000000-00"))
    assert "--resume latest" in str(caught.value)


def test_a_disk_that_fills_up_in_the_middle_of_a_line_keeps_every_whole_line(tmp_path):
    """The limit on file sizes stands in for the disk: a first write is cut short, the next one fails."""
    path = tmp_path / "0.jsonl"
    writer = (
        "import pathlib, resource, signal, sys\n"
        "from relaxforge.core.errors import StorageError\n"
        "from relaxforge.runs.directory import FileSink\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        "sink = FileSink(pathlib.Path(sys.argv[1]))\n"
        "sink.append({'session_id': 'a', 'text': 'x' * 500})\n"
        "try:\n"
        "    sink.append({'session_id': 'b', 'text': 'y' * 600})\n"
        "except StorageError as error:\n"
        "    print(error)\n"
        "sink.append({'session_id': 'c'})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "sink.append({'session_id': 'b', 'text': 'y' * 600})\n"
        "sink.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", writer, str(path)], check=True, capture_output=True, text=True)
    assert "Session b is not recorded" in done.stdout
    assert [line["session_id"] for line in lines(path)] == ["a", "c", "b"]


def test_a_sink_that_may_not_write_says_so(tmp_path):
    (tmp_path / "0.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"0\.jsonl cannot be written"):
        FileSink(tmp_path / "0.jsonl").append(row("a"))
