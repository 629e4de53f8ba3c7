"""Where a history is not what was generated: never silent."""

from dataclasses import replace

import pytest
from forest_parts import Talk, assistant, request, system, tool, user
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.forest.drift import first_difference, shared_prefix


def drift(talk, *messages):
    return talk.forest.begin(request(*messages)).drift


def test_a_rewritten_answer_is_reported_with_the_first_differing_characters_and_its_tokens():
    talk = Talk()
    talk.say(request(user("q")), "The answer is 4.", [1, 2, 3, 4])
    (note,) = drift(talk, user("q"), assistant("The answer was 4."), user("sure?"))
    assert (note.message_index, note.cause, note.tokens_without_signal) == (1, "rewritten", 4)
    assert note.excerpt == "at character 11: committed 'is 4.', here 'was 4.'"


def test_answers_behind_a_rewritten_one_lose_their_signal_too():
    talk = Talk()
    talk.say(request(user("q")), "first", [1, 2])
    talk.say(request(user("q"), assistant("first"), user("r")), "second", [3, 4, 5])
    notes = drift(talk, user("q"), assistant("FIRST"), user("r"), assistant("second"), user("s"))
    assert [(note.message_index, note.cause, note.tokens_without_signal) for note in notes] == [
        (1, "rewritten", 2),
        (3, "history_changed", 3),
    ]


def test_an_echo_without_reasoning_is_not_called_rewritten_because_something_before_it_was():
    talk = Talk()
    talk.say(request(system("10:01"), user("q")), assistant("a", reasoning="hm"))
    talk.say(request(system("10:01"), user("q"), assistant("a"), user("r")), assistant("b", reasoning="hm"))
    notes = drift(talk, system("10:02"), user("q"), assistant("a"), user("r"), assistant("b"), user("s"))
    assert [(note.cause, note.excerpt) for note in notes] == [
        ("history_changed", "message 0 at character 4: committed '1', here '2'"),
        ("history_changed", "unchanged itself"),
    ]


def test_an_answer_behind_a_changed_message_is_known_as_ours():
    """The usual case: a system message that carries the time of day."""
    talk = Talk()
    talk.say(request(system("It is 10:01."), user("q")), "a", [1, 2, 3])
    (note,) = drift(talk, system("It is 10:02."), user("q"), assistant("a"), user("r"))
    assert (note.message_index, note.cause, note.tokens_without_signal) == (2, "history_changed", 3)
    assert note.excerpt == "message 0 at character 10: committed '1.', here '2.'"


def test_a_message_that_we_never_generated_is_foreign():
    talk = Talk()
    talk.say(request(user("q")), "a")
    (note,) = drift(talk, system("You summarise."), user("shot"), assistant("an example"), user("now you"))
    assert (note.message_index, note.cause, note.tokens_without_signal) == (2, "foreign", 0)
    assert note.excerpt == "an example"


def test_examples_before_the_first_turn_are_foreign_one_by_one():
    notes = drift(Talk(), user("1"), assistant("one"), user("2"), assistant("two"), user("3"))
    assert [(note.message_index, note.cause) for note in notes] == [(1, "foreign"), (3, "foreign")]


def test_the_likest_of_several_answers_is_the_one_that_was_rewritten():
    talk = Talk()
    for text, ids in (("alpha beta", [1]), ("gamma delta", [2, 2]), ("omega", [3, 3, 3])):
        talk.say(request(user("q")), text, ids)
    (note,) = drift(talk, user("q"), assistant("gamma DELTA"), user("r"))
    assert note.tokens_without_signal == 2


@pytest.mark.parametrize(
    ("echoed", "excerpt"),
    [
        (assistant("", call="c"), "reasoning at character 0: committed 'hm', here ''"),
        (
            assistant("", reasoning="hm", call="d"),
            """tool calls at character 18: committed 'c', here 'd'""",
        ),
    ],
)
def test_strict_history_says_what_differs_where_the_text_does_not(echoed, excerpt):
    talk = Talk(strict=True)
    talk.say(request(user("q")), assistant("", reasoning="hm", call="c"))
    (note,) = drift(talk, user("q"), echoed, tool("found", "c"))
    assert (note.cause, note.excerpt) == ("rewritten", excerpt)


def test_an_exact_echo_is_no_drift_and_a_fork_before_the_answer_is_none_either():
    talk = Talk()
    talk.say(request(user("q")), "a")
    assert drift(talk, user("q"), assistant("a"), user("r")) == ()
    assert drift(talk, user("other")) == ()


def test_a_committed_foreign_message_is_part_of_the_history_from_then_on():
    talk = Talk()
    talk.say(request(user("q"), assistant("foreign"), user("r")), "a")
    pending = talk.forest.begin(request(user("q"), assistant("foreign"), user("r"), assistant("a"), user("s")))
    assert (pending.split, pending.drift) == (4, ())


def test_long_texts_are_clipped():
    (note,) = drift(Talk(), user("q"), assistant("x" * 500), user("r"))
    assert note.excerpt == "x" * 60 + "…"


@given(st.text(max_size=50), st.text(max_size=20), st.text(max_size=20))
def test_the_shared_prefix_is_the_longest_one(common, left, right):
    length = shared_prefix(common + left, common + right)
    ours, theirs = common + left, common + right
    assert ours[:length] == theirs[:length]
    assert length >= len(common)
    assert ours[length : length + 1] != theirs[length : length + 1] or ours == theirs


def test_a_difference_at_the_end_of_one_text_is_shown():
    assert first_difference("abc", "ab") == "at character 2: committed 'c', here ''"


def test_a_tool_message_that_changed_its_call_is_no_answer():
    talk = Talk()
    call = assistant("", call="c")
    first = talk.say(request(user("q")), call)
    pending = talk.forest.begin(request(user("q"), call, replace(tool("found", "c"), tool_call_id="d")))
    assert (pending.parent, pending.drift) == (first, ())
