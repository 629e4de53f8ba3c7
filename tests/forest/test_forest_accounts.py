"""From a lineage to a training row, and where every sampled token went."""

import pytest
from forest_parts import Talk, assistant, request, user

from relaxforge.core.turns import VersionSpan
from relaxforge.forest.integrity import check_integrity
from relaxforge.forest.lineage import account, sample, segments
from relaxforge.forest.select import Context


@pytest.fixture
def talk():
    return Talk()


def test_a_sample_is_prompt_answers_and_what_stands_between_them(talk):
    first = talk.say(request(user("q")), "a", [11, 12], versions=(3, 4))
    second = talk.say(request(user("q"), assistant("a"), user("r")), "b", [13, 14, 15], versions=(4,))
    row = sample(Context("main", second))
    between = len(second.parent.tokens)
    assert row.tokens == first.parent.tokens + first.tokens + second.parent.tokens + second.tokens
    assert row.prompt_length == len(first.parent.tokens)
    assert row.loss_mask.tolist() == [1, 1, *[0] * between, 1, 1, 1]
    assert [round(value, 3) for value in row.logprobs] == [-0.011, -0.012, *[0.0] * between, -0.013, -0.014, -0.015]
    assert row.versions == (
        VersionSpan(3, 0, 1),
        VersionSpan(4, 1, 2),
        VersionSpan(4, 2 + between, 5 + between),
    )
    assert (row.turns, row.name, row.state) == (2, "main", second.name)


def test_segments_are_the_lineage_without_copies(talk):
    state = talk.say(request(user("q")), "a")
    observed, answered = segments(Context(None, state))
    assert (observed.tokens, answered.tokens) == (state.parent.tokens, state.tokens)
    assert answered.tokens is state.tokens
    assert (observed.sampled, answered.sampled) == (False, True)


def test_every_sampled_token_is_trained_masked_or_undelivered(talk):
    trunk = talk.say(request(user("q")), "a", [1, 2])
    left = talk.say(request(user("q"), assistant("a"), user("l")), "left", [3, 4, 5])
    right = talk.say(request(user("q"), assistant("a"), user("r")), "right", [6] * 4)
    talk.say(request(user("title?")), "side", [7] * 5)
    talk.say(request(user("q")), "lost", [8] * 6, delivered=False)
    one = account(talk.forest, [Context("l", left)], None)
    assert (one.sampled, one.trained, dict(one.masked), one.undelivered, one.repeats) == (
        20,
        5,
        {"not_exported": 9},
        6,
        0,
    )
    both = account(talk.forest, [Context("l", left), Context("r", right), Context("t", trunk)], None)
    assert (both.trained, dict(both.masked), both.repeats) == (9, {"not_exported": 5}, 4)


@pytest.mark.parametrize("reason", ["session_failed", "group_dropped", "group_filtered", "surplus"])
def test_nothing_of_a_lost_session_is_trained_and_the_reason_covers_all_that_was_read(talk, reason):
    state = talk.say(request(user("q")), "a", [1, 2])
    talk.say(request(user("q")), "lost", [3], delivered=False)
    tokens = account(talk.forest, [Context(None, state)], reason)
    assert (tokens.trained, dict(tokens.masked), tokens.undelivered, tokens.repeats) == (0, {reason: 2}, 1, 0)
    assert tokens.balanced


def test_an_answer_that_the_agent_went_on_from_is_not_called_undelivered(talk):
    talk.say(request(user("q")), "a", [1, 2], delivered=False)
    last = talk.say(request(user("q"), assistant("a"), user("r")), "b", [3])
    assert account(talk.forest, [Context(None, last)], None).trained == 3
    assert account(talk.forest, [], "surplus").undelivered == 0


def test_an_empty_session_is_balanced_and_says_nothing(talk):
    tokens = account(talk.forest, [], "session_failed")
    assert (tokens.sampled, dict(tokens.masked), tokens.balanced) == (0, {}, True)


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (lambda state: state.tokens.append(1), "has a wrong length"),
        (lambda state: state.logprobs.pop(), "has logprobs that do not align"),
        (lambda state: setattr(state, "versions", ()), "has weight versions that do not cover its tokens"),
        (lambda state: setattr(state, "digest", b"x" * 16), "has a digest that does not chain"),
        (lambda state: setattr(state, "depth", 9), "has a wrong depth"),
        (lambda state: setattr(state.parent, "children", ()), "is not a child of its parent exactly once"),
        (lambda state: setattr(state, "index", 7), "stands at 2"),
    ],
)
def test_the_integrity_check_finds_a_broken_state(talk, harm, complaint):
    state = talk.say(request(user("q")), "a")
    check_integrity(talk.forest)
    harm(state)
    with pytest.raises(AssertionError, match=complaint):
        check_integrity(talk.forest)
