"""Which committed conversation a request continues."""

from dataclasses import replace

import pytest
from forest_parts import SEARCH, Talk, assistant, generation, render, request, system, tool, user

from relaxforge.core.turns import token_ids
from relaxforge.forest.state import Kind

CALL = assistant("", reasoning="look it up", call="call-1")


def test_the_first_request_starts_at_a_technical_root_and_renders_everything():
    talk = Talk()
    pending = talk.forest.begin(request(system("s"), user("q")))
    assert (pending.parent.kind, pending.split, pending.observation) == (Kind.ROOT, 0, None)
    assert talk.forest.states == []


def test_a_continuation_renders_only_what_is_new():
    talk = Talk()
    first = talk.say(request(user("q")), "a")
    pending = talk.forest.begin(request(user("q"), assistant("a"), user("r")))
    assert (pending.parent, pending.split) == (first, 2)
    second = talk.finish(pending, "b")
    assert second.lineage_ids() == first.lineage_ids() + render(pending).ids + second.tokens
    assert [message.text for message in second.conversation()] == ["q", "a", "r", "b"]


def test_a_fork_continues_the_last_answer_that_both_histories_share():
    talk = Talk()
    first = talk.say(request(user("q")), "a")
    left = talk.say(request(user("q"), assistant("a"), user("left")), "l")
    right = talk.say(request(user("q"), assistant("a"), user("right")), "r")
    assert left.parent.parent is right.parent.parent is first
    assert talk.forest.begin(request(user("q"), assistant("a"), user("right"), assistant("r"))).parent is right


def test_an_observation_that_the_request_only_passes_through_is_not_continued():
    """It ends in the generation prompt, so nothing but an answer can follow it."""
    talk = Talk()
    talk.say(request(user("q")), "a")
    pending = talk.forest.begin(request(user("q"), user("more")))
    assert (pending.parent.kind, pending.split) == (Kind.ROOT, 0)


@pytest.mark.parametrize("changed", [{"tools": (SEARCH,)}, {"template_kwargs": '{"thinking":false}'}])
def test_other_tools_or_template_arguments_are_another_subtree(changed):
    talk = Talk()
    talk.say(request(user("q")), "a")
    other = talk.say(replace(request(user("q"), assistant("a"), user("r")), **changed), "b")
    assert other.lineage()[0].parent is talk.forest.roots[1]
    assert other.length == len(other.parent.tokens) + len(other.tokens)


def test_equal_requests_in_flight_share_their_observation_and_their_root():
    talk = Talk()
    first, second = (talk.forest.begin(request(user("q"))) for _ in range(2))
    one, two = talk.finish(first, "a"), talk.finish(second, "b")
    assert one.parent is two.parent
    assert len(talk.forest.roots) == 1


def test_a_repeated_request_renders_nothing_and_adds_a_sibling():
    talk = Talk()
    first = talk.say(request(user("q")), "a")
    pending = talk.forest.begin(request(user("q")))
    assert pending.observation is first.parent
    second = talk.finish(pending, "a", first.tokens)
    assert second is not first
    assert list(talk.forest.responses) == [first, second]


def test_two_renderings_of_the_same_messages_are_two_observations():
    """What the engine saw is what counts, whatever it is called."""
    talk = Talk()
    first, second = (talk.forest.begin(request(user("q"))) for _ in range(2))
    one = talk.finish(first, "a")
    other = replace(render(second), ids=token_ids([7, 7]))
    two = talk.forest.commit(second, other, generation([5]), assistant("b"), "r2")
    assert (one.parent is two.parent, two.lineage_ids().tolist()) == (False, [7, 7, 5])


def test_siblings_with_the_same_text_are_both_kept_and_the_one_delivered_last_goes_on():
    talk = Talk()
    first = talk.say(request(user("q")), "same", [1, 2])
    second = talk.say(request(user("q")), "same", [12])
    on = request(user("q"), assistant("same"), user("r"))
    assert talk.forest.begin(on).parent is second
    talk.forest.deliver(first)
    pending = talk.forest.begin(on)
    assert pending.parent is first
    assert pending.leniency == {"tied_siblings": 1}
    assert talk.finish(pending).lineage_ids()[: first.length] == first.lineage_ids()
    assert [state.tokens.tolist() for state in (first, second)] == [[1, 2], [12]]


def test_an_undelivered_sibling_stands_back():
    talk = Talk()
    read = talk.say(request(user("q")), "same", [1])
    talk.say(request(user("q")), "same", [2], delivered=False)
    assert talk.forest.begin(request(user("q"), assistant("same"), user("r"))).parent is read


@pytest.mark.parametrize(
    ("echoed", "causes"),
    [
        (replace(CALL, reasoning=""), {"reasoning_dropped": 1}),
        (replace(CALL, reasoning="changed"), {"reasoning_changed": 1}),
        (assistant("", reasoning="look it up", call="other"), {"tool_call_id": 1}),
        (assistant("\n", reasoning="look it up", call="call-1"), {"white_space": 1}),
        (assistant(" ", call="other"), {"reasoning_dropped": 1, "white_space": 1, "tool_call_id": 1}),
    ],
)
def test_an_echo_that_a_client_changed_on_the_way_still_matches_and_is_counted(echoed, causes):
    talk = Talk()
    answer = talk.say(request(user("q")), CALL)
    on = request(user("q"), echoed, tool("found", echoed.tool_calls[0].id))
    pending = talk.forest.begin(on)
    assert (pending.parent, pending.split, pending.drift) == (answer, 2, ())
    assert pending.leniency == causes


def test_a_history_matched_leniently_is_found_exactly_from_then_on():
    talk = Talk()
    talk.say(request(user("q")), assistant("a", reasoning="hm"))
    first = talk.say(request(user("q"), assistant("a"), user("r")), "b")
    pending = talk.forest.begin(request(user("q"), assistant("a"), user("r"), assistant("b"), user("s")))
    assert (pending.parent, pending.leniency) == (first, {})
    canonical = request(user("q"), assistant("a", reasoning="hm"), user("r"), assistant("b"), user("s"))
    assert talk.forest.begin(canonical).parent is first


def test_a_repeated_request_is_recognised_behind_a_lenient_match():
    talk = Talk()
    talk.say(request(user("q")), assistant("a", reasoning="hm"))
    exact = talk.say(request(user("q"), assistant("a", reasoning="hm"), user("r")), "b")
    pending = talk.forest.begin(request(user("q"), assistant("a"), user("r")))
    assert pending.observation is exact.parent
    assert pending.leniency == {"reasoning_dropped": 1}


def test_an_exact_match_beats_a_lenient_one_of_the_same_length():
    talk = Talk()
    exact = talk.say(request(user("q")), assistant("a"))
    talk.say(request(user("q")), assistant("a", reasoning="hm"))
    pending = talk.forest.begin(request(user("q"), assistant("a"), user("r"), assistant("not ours"), user("s")))
    assert (pending.parent, pending.leniency) == (exact, {})


def test_a_tie_among_leniently_matched_answers_is_visible():
    talk = Talk()
    talk.say(request(user("q")), assistant("a", reasoning="one"))
    last = talk.say(request(user("q")), assistant("a", reasoning="two"))
    pending = talk.forest.begin(request(user("q"), assistant("a"), user("r")))
    assert (pending.parent, pending.leniency) == (last, {"reasoning_dropped": 1, "tied_siblings": 1})


def test_a_tie_that_was_not_the_choice_is_not_reported():
    talk = Talk()
    for ids in ([1], [2]):
        talk.say(request(user("q")), "same", ids)
    on = (user("q"), assistant("same"), user("r"))
    only = talk.say(request(*on), assistant("b", reasoning="hm"))
    pending = talk.forest.begin(request(*on, assistant("b"), user("s")))
    assert (pending.parent, pending.leniency) == (only, {"reasoning_dropped": 1})


def test_white_space_of_an_agents_own_message_is_its_business():
    talk = Talk()
    talk.say(request(user("q")), "a")
    assert talk.forest.begin(request(user(" q "))).observation is None


@pytest.mark.parametrize("echoed", [replace(CALL, reasoning=""), assistant(" ", reasoning="look it up", call="call-1")])
def test_strict_history_matches_exact_echoes_only(echoed):
    talk = Talk(strict=True)
    answer = talk.say(request(user("q")), CALL)
    pending = talk.forest.begin(request(user("q"), echoed, tool("found", "call-1")))
    assert (pending.parent.kind, pending.split) == (Kind.ROOT, 0)
    assert [note.cause for note in pending.drift] == ["rewritten"]
    assert talk.forest.begin(request(user("q"), CALL, tool("found", "call-1"))).parent is answer


def test_a_request_that_adds_nothing_continues_its_last_answer_again_and_again():
    talk = Talk()
    first = talk.say(request(user("q")), "a")
    whole = request(user("q"), assistant("a"))
    siblings = [talk.say(whole, text) for text in ("b", "c")]
    assert {sibling.parent.parent for sibling in siblings} == {first}
    assert siblings[0].parent is siblings[1].parent
    assert [message.text for message in siblings[1].conversation()] == ["q", "a", "c"]


def test_an_empty_answer_is_an_answer():
    talk = Talk()
    empty = talk.say(request(user("q")), "", [2])
    assert talk.forest.begin(request(user("q"), assistant(""), user("well?"))).parent is empty


def test_a_turn_that_is_never_committed_leaves_no_trace():
    talk = Talk()
    talk.say(request(user("q")), "a")
    before = (list(talk.forest.states), [state.children for state in talk.forest.states])
    talk.forest.begin(request(user("q"), assistant("a"), user("r")))
    talk.forest.begin(request(user("other"), tools=(SEARCH,)))
    assert (talk.forest.states, [state.children for state in talk.forest.states]) == before


def test_a_commit_finds_its_place_however_much_was_committed_meanwhile():
    talk = Talk()
    late, other = talk.forest.begin(request(user("q"))), talk.forest.begin(request(user("q"), tools=(SEARCH,)))
    early = talk.say(request(user("q")), "a")
    talk.say(request(user("q"), assistant("a"), user("r")), "b")
    assert talk.finish(other, "x").lineage()[0].parent is talk.forest.roots[1]
    assert talk.finish(late, "a", [9]).parent is early.parent
    assert [state.index for state in talk.forest.states] == list(range(len(talk.forest.states)))


def test_a_client_that_always_drops_reasoning_is_counted_once_per_answer():
    talk = Talk()
    history = [user("q")]
    counted = []
    for number in range(4):
        pending = talk.forest.begin(request(*history))
        counted.append(pending.leniency.get("reasoning_dropped", 0))
        talk.finish(pending, assistant(f"a{number}", reasoning=f"hm {number}"))
        history += [assistant(f"a{number}"), user(f"r{number}")]
    assert counted == [0, 1, 1, 1]
    assert len(talk.forest.states[-1].lineage()) == 8
