"""The steps of an attempt: every call, every result, every word of the model, in order of commit."""

import json

import pytest
from export_parts import Forest, call, dump, result, said, shop, user

from relaxforge.core.evidence import TrajectoryStep
from relaxforge.export.trajectory import read_command, steps_in, steps_of, trajectory_file


def rows(line, extra=None):
    return [(step.tool, step.command, step.observation) for step in steps_of(line, extra)]


def test_each_call_with_its_result_is_a_step_and_a_turn_without_calls_is_a_message():
    forest, last = shop()
    steps = steps_of(dump(forest, exported=last))
    assert steps == [
        TrajectoryStep(1, "mcp", "initialize", "ready"),
        TrajectoryStep(2, "order", '{"item":"mug","n":2}', "placed ORD-8841"),
        TrajectoryStep(3, "message", "", "Done."),
    ]


def test_a_failed_session_without_an_export_has_its_steps_too():
    forest, _ = shop()
    line = dump(forest, status="failed", failure={"category": "agent_error", "message": "exit code 1", "log_tail": ""})
    assert len(steps_of(line)) == 3


def test_a_call_that_never_got_a_result_is_a_step_without_observation():
    forest = Forest()
    forest.turn(None, [user("go")], said(None, call("c", "bash", '{"command":"sleep 9"}')))
    assert rows(dump(forest)) == [("bash", "sleep 9", "")]


def test_forks_and_side_conversations_come_in_order_of_commit():
    forest = Forest()
    first = forest.turn(None, [user("go")], said("one"))
    forest.turn(None, [user("title?")], said("a title"))
    forest.turn(first, [user("more")], said("two"))
    forest.again("s1", said("one, again"))
    assert [row[2] for row in rows(dump(forest))] == ["one", "a title", "two", "one, again"]


def test_results_belong_to_their_calls_by_id_and_else_by_order():
    forest = Forest()
    both = said(None, call("a", "f", "{}"), call("b", "g", "{}"))
    by_id = forest.turn(None, [user("go")], both)
    forest.turn(by_id, [result("b", "from g"), result("a", "from f")], said("done"))
    by_order = forest.turn(None, [user("again")], both)
    forest.turn(by_order, [result("x", "from f"), result("y", "from g")], said("done"))
    expected = [("f", "{}", "from f"), ("g", "{}", "from g"), ("message", "", "done")]
    assert rows(dump(forest)) == expected * 2


def test_another_result_for_the_same_call_is_another_step():
    forest = Forest()
    asked = forest.turn(None, [user("go")], said(None, call("a", "roll", "{}")))
    forest.turn(asked, [result("a", "3")], said("three"))
    forest.turn(asked, [result("a", "5")], said("five"))
    assert rows(dump(forest)) == [
        ("roll", "{}", "3"), ("message", "", "three"), ("roll", "{}", "5"), ("message", "", "five")
    ]  # fmt: skip


def test_what_the_agent_appended_comes_last_and_counts_on():
    forest, _ = shop()
    extra = [{"tool": "browser", "command": "open /cart", "observation": "2 items"}, {"tool": "note"}]
    steps = steps_of(dump(forest, steps=extra))
    assert steps[-2:] == [TrajectoryStep(4, "browser", "open /cart", "2 items"), TrajectoryStep(5, "note", "", "")]
    assert steps_of(dump(forest), extra) == steps


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ('{"command":"ls -la"}', "ls -la"),
        ('{"cmd":"ls"}', "ls"),
        ('{"input":"text"}', "text"),
        ('{"command":["ls","-la"]}', '{"command":["ls","-la"]}'),
        ('{"command":"ls", "cwd": "/"}', '{"command":"ls","cwd":"/"}'),
        ('{"path": "\\u00e9"}', '{"path":"é"}'),
        ("not json {", "not json {"),
        ('{"x": NaN}', '{"x": NaN}'),
        ("", ""),
    ],
)
def test_a_command_is_shown_as_its_text_where_it_is_the_only_argument(arguments, command):
    assert read_command(arguments) == command


def test_content_in_parts_is_read_as_text():
    forest = Forest()
    image = {"type": "image_url", "image_url": {"url": "data:..."}}
    looked = forest.turn(None, [user("go")], said(None, call("a", "look", "{}")))
    forest.turn(looked, [result("a", [{"type": "text", "text": "a cat: "}, image])], said("ok"))
    assert rows(dump(forest))[0] == ("look", "{}", "a cat: [image]")


def test_the_file_has_exactly_the_three_keys_and_the_steps_as_json_text():
    data = trajectory_file("opened admin-console", [TrajectoryStep(1, "mcp", "initialize", "…")])
    assert data.decode() == (
        '{"schemaVersion":1,"log":"opened admin-console","trajectory":'
        '"{\\"steps\\":[{\\"step\\":1,\\"tool\\":\\"mcp\\",\\"command\\":\\"initialize\\",\\"observation\\":\\"…\\"}]}"}'
    )


def test_five_thousand_long_steps_are_all_kept():
    steps = [TrajectoryStep(n, "bash", "cat big", "é" * 2_000) for n in range(1, 5_001)]
    data = trajectory_file("x", steps)
    assert steps_in(data) == steps
    assert json.loads(json.loads(data)["trajectory"])["steps"][-1]["step"] == 5_000


@pytest.mark.parametrize("data", [b"", b"{}", b'{"trajectory":"{"}', b'{"trajectory":{}}', b"\xff"])
def test_what_is_no_trajectory_file_is_an_error(data):
    with pytest.raises(ValueError, match="not a trajectory file"):
        steps_in(data)
