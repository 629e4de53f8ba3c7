"""Training rows: their shapes, and which rollouts can become one."""

import json

import pytest
from export_parts import Forest, call, dump, result, said, stored, user

from relaxforge.export.trainers import kto_line, openai_dpo_line, preference_line, sft_line

TOOLS = [[{"type": "function", "function": {"name": "order", "parameters": {"type": "object"}}}]]


def errand(arguments, *, call_id="c", task="Buy a mug.", looked="2 mugs left", reasoning=""):
    """Look, then order with ``arguments``; the same up to there in every attempt but for the ids."""
    forest = Forest()
    start = [{"role": "system", "content": "You run errands."}, user(task)]
    first = forest.turn(None, start, said(None, call(f"{call_id}1", "look", "{}"), reasoning=reasoning), tools=0)
    ordered = said("Ordering.", call(f"{call_id}2", "order", arguments))
    second = forest.turn(first, [result(f"{call_id}1", looked)], ordered)
    last = forest.turn(second, [result(f"{call_id}2", "placed")], said("Done."))
    return dump(forest, exported=last, tools=TOOLS)


def pair(better, worse):
    return stored(better, reward=1.0), stored(worse, reward=0.0)


def test_sft_rows_hold_the_whole_main_conversation_with_arguments_as_text():
    row = json.loads(sft_line(stored(errand('{"n": 1, "item": "mug"}', reasoning="hm"))))
    assert list(row) == ["messages", "tools"]
    assert [message["role"] for message in row["messages"]] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert row["messages"][2] == {
        "role": "assistant", "content": "", "reasoning_content": "hm",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    }  # fmt: skip
    assert row["messages"][4]["tool_calls"][0]["function"]["arguments"] == '{"item":"mug","n":1}'
    assert row["messages"][5] == {"role": "tool", "content": "placed", "tool_call_id": "c2"}
    assert json.loads(row["tools"]) == TOOLS[0]


def test_side_conversations_and_forks_are_not_in_the_row():
    forest = Forest()
    forest.turn(None, [user("title?")], said("a title"))
    first = forest.turn(None, [user("go")], said("one"))
    last = forest.turn(first, [user("on")], said("two"))
    forest.turn(first, [user("elsewhere")], said("fork"))
    messages = json.loads(sft_line(stored(dump(forest, exported=last))))["messages"]
    assert [message["content"] for message in messages] == ["go", "one", "on", "two"]


def test_a_session_that_exported_nothing_is_told_by_the_longest_of_its_first_conversations():
    forest = Forest()
    first = forest.turn(None, [user("go")], said("one"))
    forest.turn(None, [user("a")], said("b"))
    forest.turn(first, [user("on")], said("two"))
    messages = json.loads(sft_line(stored(dump(forest))))["messages"]
    assert [message["content"] for message in messages] == ["go", "one", "on", "two"]


@pytest.mark.parametrize(("reward", "label"), [(1.0, True), (0.99, False), (0.0, False)])
def test_kto_rows_are_good_when_the_reward_is_one(reward, label):
    row = json.loads(kto_line(stored(errand("{}"), reward=reward)))
    assert list(row) == ["prompt", "completion", "label", "tools"]
    assert row["label"] is label
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert row["completion"][0]["role"] == "assistant"


def test_pairs_are_the_first_answers_that_differ_after_one_and_the_same_prompt():
    better, worse = pair(errand('{"n": 1}', call_id="a"), errand('{"n": 9}', call_id="b"))
    row = json.loads(preference_line(better, worse))
    assert list(row) == ["prompt", "chosen", "rejected", "tools"]
    assert [message["role"] for message in row["prompt"]] == ["system", "user", "assistant", "tool"]
    assert row["prompt"][2]["tool_calls"][0]["id"] == row["prompt"][3]["tool_call_id"] == "a1"
    sides = [row[side][0]["tool_calls"][0]["function"]["arguments"] for side in ("chosen", "rejected")]
    assert sides == ['{"n":1}', '{"n":9}']
    assert [len(row["chosen"]), len(row["rejected"])] == [1, 1]


def test_openai_rows_have_one_assistant_message_on_each_side():
    row = json.loads(openai_dpo_line(*pair(errand('{"n": 1}'), errand('{"n": 9}'))))
    assert list(row) == ["input", "preferred_output", "non_preferred_output"]
    assert list(row["input"]) == ["messages", "tools", "parallel_tool_calls"]
    assert row["input"]["tools"] == TOOLS[0]
    assert [message["role"] for side in list(row)[1:] for message in row[side]] == ["assistant", "assistant"]


@pytest.mark.parametrize(
    "worse",
    [
        errand('{"n": 1}'),
        errand('{"n":   1}', call_id="other"),
        errand('{"n": 9}', task="Buy a hat."),
        errand('{"n": 9}', looked="0 mugs left"),
        {**errand('{"n": 9}'), "tools": []},
        dump(),
    ],
    ids=["equal", "equal but for ids", "another task", "another result", "other tools", "nothing said"],
)
def test_no_pair_where_nothing_could_be_learned(worse):
    rollouts = pair(errand('{"n": 1}'), worse)
    assert preference_line(*rollouts) is None
    assert openai_dpo_line(*rollouts) is None


def test_rollouts_without_a_conversation_or_a_score_are_left_out():
    assert sft_line(stored()) is None
    assert sft_line(stored(dump())) is None
    assert sft_line(stored(errand("{}"), session=b"damaged")) is None
    assert kto_line(stored(errand("{}"), reward=None)) is None
