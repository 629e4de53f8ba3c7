"""steps.jsonl: whatever an agent wrote there is evidence, and nothing it can write stops anybody."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.agents.steps import NAME, read_steps
from relaxforge.core.evidence import TrajectoryStep


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("io")


def written(folder, data: bytes, **limit):
    (folder / NAME).write_bytes(data)
    return read_steps(folder, **limit)


def test_no_file_is_no_steps(tmp_path):
    assert read_steps(tmp_path) == ()


def test_five_thousand_steps_are_all_kept(folder):
    rows = [{"tool": "sh", "command": f"echo {n}", "observation": "x" * 1000} for n in range(5000)]
    steps = written(folder, "".join(json.dumps(row) + "\n" for row in rows).encode())
    assert [step.step for step in steps] == list(range(1, 5001))
    assert steps[-1] == TrajectoryStep(5000, "sh", "echo 4999", "x" * 1000)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        (b'{"tool": "t"}', ("t", "", "")),
        (b'{"tool": "t", "command": {"a": [1]}, "observation": null, "more": 1}', ("t", '{"a": [1]}', "")),
        (b'{"tool": "t", "observation": "\\u0000\\u001b[31m<script>\\ud800"}', ("t", "", "\0\x1b[31m<script>\ufffd")),
        (b'{"tool": 7}', ("message", "", '{"tool": 7}')),
        (b'{"tool": ""}', ("message", "", '{"tool": ""}')),
        (b'["tool"]', ("message", "", '["tool"]')),
        (b"plain words", ("message", "", "plain words")),
        (b'{"tool": "t", "command": "cut of', ("message", "", '{"tool": "t", "command": "cut of')),
        (b"\xff\xfe", ("message", "", "\ufffd\ufffd")),
    ],
)
def test_a_line_of_another_shape_is_kept_as_words(folder, line, step):
    (found,) = written(folder, b"\n" + line + b"\n\n")
    assert (found.tool, found.command, found.observation) == step


def test_more_than_the_limit_ends_between_lines_and_says_so(folder):
    line = b'{"tool": "sh", "command": "a"}\n'
    *kept, last = written(folder, line * 10, most_bytes=3 * len(line) + 5)
    assert [step.tool for step in kept] == ["sh"] * 3
    assert last.observation == f"steps.jsonl goes on after its first {3 * len(line)} bytes; at most 98 are kept"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir()])
def test_what_is_no_file_is_said(tmp_path, make):
    make(tmp_path / NAME)
    (step,) = read_steps(tmp_path)
    assert step.tool == "message"
    assert "cannot be read" in step.observation
    assert "root:" not in step.observation


@given(st.binary(max_size=200))
def test_no_bytes_make_it_stumble(folder, data):
    for step in written(folder, data):
        json.dumps([step.tool, step.command, step.observation]).encode()
