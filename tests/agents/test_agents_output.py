"""What may stand in RELAX_OUTPUT_JSON, and what is refused with which words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.agents.output import MAX_OUTPUT_BYTES, parse_output, read_output
from relaxforge.core.errors import AgentError
from relaxforge.core.sessions import AgentOutput, FailureCategory

MESSAGES = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]


def record(name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "messages": MESSAGES, **more}


def lines(*values: Any) -> bytes:
    return "\n".join(json.dumps(value) for value in values).encode()


def refusal(data: bytes) -> str:
    with pytest.raises(AgentError) as caught:
        parse_output(data)
    assert caught.value.category is FailureCategory.BAD_OUTPUT
    return str(caught.value)


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", b"\xef\xbb\xbf", b"{}", b'{"metadata": null, "reward": null}'])
def test_blank_and_empty_outputs_are_no_output(data: bytes) -> None:
    assert parse_output(data) == AgentOutput()


def test_an_object_goes_with_the_implicit_export() -> None:
    output = parse_output(b'\n{"metadata": {"task_success": 1.0},\n "reward": 1, "scroe": 2, "name": "x"}\n')
    assert output == AgentOutput(metadata={"task_success": 1.0}, reward=1.0, ignored_keys=("name", "scroe"))
    assert output.records is None


def test_a_reward_object_is_kept_as_written() -> None:
    assert parse_output(b'{"reward": {"acc": 1, "note": "fine"}}').reward == {"acc": 1, "note": "fine"}


def test_an_object_with_messages_is_one_record() -> None:
    (only,) = parse_output(json.dumps(record(reward=0.5, metadata={"a": 1}), indent=2).encode()).records or ()
    assert (only.name, only.messages, only.reward, only.metadata) == ("main", tuple(MESSAGES), 0.5, {"a": 1})
    assert (only.tools, only.chat_template_kwargs) == ((), {})


def test_every_line_of_jsonl_is_a_record() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    data = lines(record(), record("searcher", tools=tools, chat_template_kwargs={"x": True})) + b"\n\n"
    main, searcher = parse_output(data).records or ()
    assert (main.name, searcher.name) == ("main", "searcher")
    assert (searcher.tools, searcher.chat_template_kwargs) == (tuple(tools), {"x": True})


def test_lone_surrogates_become_replacement_characters_and_pairs_a_character() -> None:
    output = parse_output(rb'{"metadata": {"a": "\ud83d\ude00 \udead"}}')
    assert output.metadata == {"a": "\U0001f600 \ufffd"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"reward": 1.0, "metad', "line 1: not valid JSON: Unterminated string .*written whole"),
        (b'{"reward":\n 1.0,\n', "line 3: not valid JSON"),
        (b'[{"reward": 1.0}]', "it is an array; write one object"),
        (b"1.0", "it is 1.0; write one object"),
        (b'{"reward": "high"}', 'the reward is "high"; it must be a finite number, an object or null'),
        (b'{"reward": true}', "the reward is true; it must be a finite number"),
        (b'{"reward": [1]}', "the reward is an array; it must be a finite number"),
        (b'{"reward": NaN}', "NaN is not a JSON number"),
        (b'{"reward": {"acc": Infinity}}', "Infinity is not a JSON number"),
        (b'{"reward": 1e999}', "1e999 is beyond the range of a number"),
        (b'{"reward": 1' + b"0" * 400 + b"}", "the reward is too large; it must be a finite number"),
        (b'{"reward": 1' + b"0" * 5000 + b"}", "RELAX_OUTPUT_JSON: "),
        (b'{"metadata": [1]}', "metadata is an array; it must be an object"),
        (b'{"metadata": "x"}', 'metadata is "x"; it must be an object'),
        (b'{"metadata": {"a": "\xff"}}', "line 1: not valid UTF-8"),
        (b'{"metadata":\n{"a": "\xff"}}', "line 2: not valid UTF-8"),
        (b'{"metadata": {"a": "\x00"}}', "line 1: not valid JSON: Invalid control character"),
        (b'{"metadata": {"a": ' + b"[" * 300 + b"]" * 300 + b"}}", "nested deeper than 200"),
        (b'{"metadata": {"a": ' + b"[" * 100_000, "nested deeper than 200"),
        (lines(record(), "x")[:-1], "line 2: not valid JSON: Unterminated string"),
        (lines(record(), record("second"))[:-9], "line 2: not valid JSON"),
        (lines(record(), [1]), "line 2: it is an array"),
        (lines({"reward": 1.0}, {"reward": 1.0}), "line 1: the name is null"),
        (lines(record(), record()), "line 2: the name 'main' occurs before"),
        (lines(record(""), record("b")), 'line 1: the name is ""; a record needs a non-empty string'),
        (lines(record(), {"messages": MESSAGES}), "line 2: the name is null; a record needs a non-empty string"),
        (lines(record(), {"name": "b"}), "line 2: record 'b' has no messages"),
        (lines(record(), record("b", messages=[])), "line 2: record 'b' has no messages"),
        (lines(record(messages=["hello"])), "messages is an array; it must be a list of objects"),
        (lines(record(messages="hello")), 'messages is "hello"; it must be a list of objects'),
        (lines(record(), record("b", tools={})), "line 2: tools is an object; it must be a list of objects"),
        (lines(record(score=1)), "unknown keys 'score'; a record has name, messages, tools"),
        (lines(record(), record("b", reward="high")), 'line 2: the reward is "high"'),
        (lines(record(name="n" * 100, messages=3)), "messages is 3"),
        (lines(record(), record("b")).replace(b"\n", b" "), "line 1: not valid JSON: Extra data"),
    ],
)
def test_bad_output_says_where_and_what_was_allowed(data: bytes, words: str) -> None:
    with pytest.raises(AgentError, match=words):
        parse_output(data)
    assert refusal(data).startswith("RELAX_OUTPUT_JSON")


def test_a_missing_file_is_no_output(tmp_path: Path) -> None:
    assert read_output(tmp_path / "session_output.json") == AgentOutput()


def test_what_is_not_a_regular_file_is_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless", ""):
        with pytest.raises(AgentError, match=r"cannot be read: .* is not a regular file"):
            read_output(tmp_path / name)


def test_an_output_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "session_output.json"
    path.touch()
    os.truncate(path, MAX_OUTPUT_BYTES + 1)
    with pytest.raises(AgentError, match="more than 64 MiB"):
        read_output(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["name", "messages", "tools", "chat_template_kwargs", "metadata", "reward", "x"])
NEAR_RECORDS = st.dictionaries(KEYS, JSON | st.just(MESSAGES), max_size=6)


def accepted_or_bad_output(data: bytes) -> AgentOutput | None:
    try:
        return parse_output(data)
    except AgentError as error:
        if error.category is not FailureCategory.BAD_OUTPUT:
            raise
        return None


@given(st.binary(max_size=200))
def test_any_bytes_are_an_output_or_bad_output(data: bytes) -> None:
    accepted_or_bad_output(data)


@given(st.lists(NEAR_RECORDS, max_size=4), st.integers(0, 400))
def test_near_misses_cut_anywhere_are_an_output_or_bad_output(values: list[dict[str, Any]], cut: int) -> None:
    output = accepted_or_bad_output(lines(*values)[:cut])
    for exported in (output and output.records) or ():
        assert exported.name.strip()
        assert exported.messages
        assert exported.reward is None or isinstance(exported.reward, float | dict)


@given(st.dictionaries(st.text(min_size=1).filter(str.strip), st.none() | st.floats(allow_nan=False), min_size=2))
def test_valid_records_come_back_in_order(rewards: dict[str, float | None]) -> None:
    finite = {name: reward for name, reward in rewards.items() if reward is None or abs(reward) < 1e308}
    output = parse_output(lines(*(record(name, reward=reward) for name, reward in finite.items())))
    assert {exported.name: exported.reward for exported in output.records or ()} == finite
