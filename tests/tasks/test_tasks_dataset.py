import json
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from relaxforge.core.errors import ConfigError, TaskError
from relaxforge.tasks.config import DataConfig
from relaxforge.tasks.dataset import Dataset, open_held_out, open_training
from relaxforge.tasks.rows import RowShape


def jsonl(path: Path, *rows: object) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_a_string_becomes_one_user_message(tmp_path):
    dataset = Dataset(jsonl(tmp_path / "d.jsonl", {"input": "hi"}), RowShape())
    assert dataset[0].messages == ({"role": "user", "content": "hi"},)
    assert dataset[0].session_input == {"messages": [{"role": "user", "content": "hi"}]}


def test_a_message_list_keeps_its_shape(tmp_path):
    messages = [
        {"role": "system", "content": "s", "name": "x"},
        {"role": "user", "content": [{"type": "text", "text": "t"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
    ]
    dataset = Dataset(jsonl(tmp_path / "d.jsonl", {"input": messages, "metadata": {"id": 7}}), RowShape())
    assert list(dataset[0].messages) == messages
    assert dataset[0].session_input == {"messages": messages, "metadata": {"id": 7}}


def test_metadata_alone_is_a_task(tmp_path):
    dataset = Dataset(jsonl(tmp_path / "d.jsonl", {"metadata": {"a": 1}}), RowShape())
    assert dataset[0].messages is None
    assert dataset[0].session_input == {"metadata": {"a": 1}}


def test_the_label_is_kept_from_the_agent(tmp_path):
    dataset = Dataset(jsonl(tmp_path / "d.jsonl", {"q": "1+1?", "a": "2"}), RowShape(input_key="q", label_key="a"))
    assert dataset[0].label == "2"
    assert "2" not in json.dumps(dataset[0].session_input)


def test_the_system_prompt_goes_where_none_is(tmp_path):
    own = [{"role": "system", "content": "own"}, {"role": "user", "content": "u"}]
    path = jsonl(tmp_path / "d.jsonl", {"input": "hi"}, {"input": own}, {"metadata": {}})
    dataset = Dataset(path, RowShape(system_prompt="be brief"))
    assert dataset[0].messages[0] == {"role": "system", "content": "be brief"}
    assert list(dataset[1].messages) == own
    assert dataset[2].messages is None


def test_blank_lines_a_byte_order_mark_and_a_missing_last_newline_do_no_harm(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"input": "one"}\r\n\n  \n{"input": "two"}')
    dataset = Dataset(path, RowShape())
    assert [dataset[index].messages[0]["content"] for index in range(len(dataset))] == ["one", "two"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "x"}, "d.jsonl:2: the row has neither messages .*'input'.* nor metadata .*'metadata'.*question"),
        ({}, "its keys are: none"),
        ([1], "d.jsonl:2: a row must be an object, got a list"),
        ({"input": 3}, "'input' must be a string or a non-empty list of messages, got a number"),
        ({"input": []}, "got an empty list"),
        ({"input": [{"role": "robot", "content": "x"}]}, r"'input'\[0\].role must be one of .*, got 'robot'"),
        ({"input": [{"role": "user", "content": 5}]}, r"'input'\[0\].content must be a string or a list of parts"),
        ({"input": ""}, r"'input'\[0\].content is empty"),
        ({"input": ["hi"]}, r"'input'\[0\] must be a message object, got a string"),
        ({"input": "x", "metadata": "m"}, "'metadata' must be an object, got a string"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line_when_the_dataset_is_opened(tmp_path, row, message):
    path = jsonl(tmp_path / "d.jsonl", {"input": "fine"}, row)
    with pytest.raises(TaskError, match=message):
        Dataset(path, RowShape())


def test_invalid_json_is_named_by_file_line_and_column(tmp_path):
    path = jsonl(tmp_path / "d.jsonl", {"input": "fine"}, '{"input": oops}')
    with pytest.raises(TaskError, match=r"d\.jsonl:2:11: invalid JSON"):
        Dataset(path, RowShape())


def test_invalid_utf8_is_named_by_file_and_line(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_bytes(b'{"input": "\xff\xfe"}\n')
    with pytest.raises(TaskError, match=r"d\.jsonl:1:12: invalid JSON"):
        Dataset(path, RowShape())


def test_a_missing_label_is_an_error(tmp_path):
    with pytest.raises(TaskError, match="--label-key 'answer' is missing; keys: input"):
        Dataset(jsonl(tmp_path / "d.jsonl", {"input": "x"}), RowShape(label_key="answer"))


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_an_empty_dataset_is_an_error(tmp_path, content):
    path = tmp_path / "d.jsonl"
    path.write_text(content)
    with pytest.raises(TaskError, match="the dataset is empty"):
        Dataset(path, RowShape())


def test_files_that_are_no_datasets_are_named(tmp_path):
    with pytest.raises(TaskError, match="no such dataset file"):
        Dataset(tmp_path / "missing.jsonl", RowShape())
    with pytest.raises(TaskError, match="is a folder"):
        Dataset(tmp_path, RowShape())
    (tmp_path / "d.csv").write_text("a,b")
    with pytest.raises(TaskError, match=r"\.jsonl, \.ndjson or \.parquet file, not \.csv"):
        Dataset(tmp_path / "d.csv", RowShape())


def parquet(path: Path, **columns: list[object]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_rows_are_tasks_too(tmp_path):
    path = parquet(
        tmp_path / "d.parquet",
        input=["hi", None],
        metadata=[{"id": 1}, {"id": 2}],
        answer=["a", "b"],
        unused=[b"x" * 100, b"y" * 100],
    )
    dataset = Dataset(path, RowShape(label_key="answer"))
    assert len(dataset) == 2
    assert dataset[0].messages == ({"role": "user", "content": "hi"},)
    assert dataset[1].messages is None
    assert (dataset[1].metadata, dataset[1].label, dataset[1].index) == ({"id": 2}, "b", 1)


def test_a_parquet_row_without_the_keys_is_named(tmp_path):
    path = parquet(tmp_path / "d.parquet", question=["x"])
    with pytest.raises(TaskError, match=r"d\.parquet: row 1: the row has neither .* its keys are: question"):
        Dataset(path, RowShape())


def test_a_broken_parquet_file_is_named(tmp_path):
    path = tmp_path / "d.parquet"
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(TaskError, match=r"d\.parquet: not a readable Parquet file"):
        Dataset(path, RowShape())


def test_training_and_held_out_data_may_use_their_own_keys(tmp_path):
    train = jsonl(tmp_path / "t.jsonl", {"input": "q"})
    test = jsonl(tmp_path / "e.jsonl", {"question": "q2", "gold": 4})
    config = DataConfig(
        prompt_data=str(train),
        eval_prompt_data=("easy", str(test), "hard", str(test)),
        eval_input_key="question",
        eval_label_key="gold",
    )
    assert open_training(config)[0].messages[0]["content"] == "q"
    held_out = open_held_out(config)
    assert list(held_out) == ["easy", "hard"]
    assert held_out["hard"][0].label == 4


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (("name",), "takes NAME PATH pairs, got 1 values"),
        (("a/b", "x.jsonl"), "'a/b' cannot name a dataset"),
        (("a", "x.jsonl", "a", "y.jsonl"), "names 'a' twice"),
    ],
)
def test_held_out_pairs_are_checked(pairs, message):
    with pytest.raises(ConfigError, match=message):
        DataConfig(prompt_data="t.jsonl", eval_prompt_data=pairs)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"input": "a", "metadata": {"x": NaN}}', "NaN is no JSON number"),
        ('{"input": "a\\ud800b"}', "half of a surrogate pair"),
        ('{"input": "a", "metadata": {"x": ' + "9" * 5000 + "}}", "4300 digits"),
        ('{"input": "a", "metadata": {"x": ' + "[" * 100_000 + "]" * 100_000 + "}}", "nested too deep"),
    ],
)
def test_json_that_others_would_take_says_what_is_wrong_with_it(tmp_path, line, reason):
    with pytest.raises(TaskError, match=reason) as caught:
        Dataset(jsonl(tmp_path / "d.jsonl", {"input": "fine"}, line), RowShape())
    assert f"{tmp_path / 'd.jsonl'}:2" in str(caught.value)


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "d.jsonl")
    with pytest.raises(TaskError, match="not a regular file"):
        Dataset(tmp_path / "d.jsonl", RowShape())


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_said_so(name):
    with pytest.raises(TaskError, match="cannot be read"):
        Dataset(f"{name}.jsonl", RowShape())
