"""Which Contexts an agent's output selects."""

import pytest
from forest_parts import SEARCH, Talk, assistant, request, system, tool, user

from relaxforge.core.errors import AgentError
from relaxforge.core.sessions import FailureCategory
from relaxforge.core.turns import FinishReason
from relaxforge.forest.lineage import sample, terminal_status
from relaxforge.forest.select import explicit_context, implicit_context


@pytest.fixture
def talk():
    return Talk()


def refusal(call, *args):
    with pytest.raises(AgentError) as caught:
        call(*args)
    assert caught.value.category is FailureCategory.EXPORT_MISMATCH
    return str(caught.value)


# Implicit: the one Context of a linear history


def test_a_linear_history_is_exported_without_being_named(talk):
    talk.say(request(user("q")), "a")
    last = talk.say(request(user("q"), assistant("a"), user("r")), "b")
    context = implicit_context(talk.forest, "linear")
    assert (context.state, context.name, context.complete) == (last, None, True)


def test_an_answer_that_nobody_read_does_not_make_a_history_nonlinear(talk):
    talk.say(request(user("q")), "lost", delivered=False)
    read = talk.say(request(user("q")), "read")
    talk.say(request(user("q"), assistant("read"), user("r")), "lost again", delivered=False)
    assert implicit_context(talk.forest, "linear").state is read


def test_an_answer_that_the_agent_went_on_from_was_read_even_if_its_delivery_is_in_doubt(talk):
    read = talk.say(request(user("q")), "a", delivered=False)
    talk.say(request(user("q"), assistant("a"), user("r")), "b", delivered=False)
    assert implicit_context(talk.forest, "linear").state is read


def test_without_any_answer_that_was_read_there_is_nothing_to_export(talk):
    talk.say(request(user("q")), "a", delivered=False)
    assert "nothing can be exported" in refusal(implicit_context, talk.forest, "linear")


@pytest.mark.parametrize("histories", [("best", "of", "three")])
def test_delivered_siblings_are_not_linear(talk, histories):
    for text in histories:
        talk.say(request(user("q")), text)
    assert "it has 3 Contexts" in refusal(implicit_context, talk.forest, "linear")


def test_a_history_with_a_rewritten_answer_is_not_linear(talk):
    talk.say(request(user("q")), "a")
    talk.say(request(user("q"), assistant("A!"), user("r")), "b")
    assert "it has 2 Contexts" in refusal(implicit_context, talk.forest, "linear")


def interleave_two_agents(talk):
    """A main agent and a searcher that it starts in between, turn by turn on one Session."""
    main, searcher = [system("You plan."), user("plan it")], [system("You search."), user("find x")]
    for number in range(3):
        for history, who in ((main, "main"), (searcher, "searcher")):
            answer = talk.say(request(*history), f"{who} {number}")
            history += [*answer.messages, user(f"go on {number}")]


def test_interleaved_agents_are_two_contexts_and_the_error_says_what_to_write(talk):
    interleave_two_agents(talk)
    message = refusal(implicit_context, talk.forest, "linear")
    assert "it has 2 Contexts" in message
    assert "begins 'You plan.'" in message
    assert "begins 'You search.'" in message
    assert "Write one JSONL record with name and messages to RELAX_OUTPUT_JSON" in message
    assert "--agentic-implicit-export main" in message


def test_main_takes_the_context_that_grew_from_the_first_request(talk):
    interleave_two_agents(talk)
    state = implicit_context(talk.forest, "main").state
    assert [message.text for message in state.conversation() if message.role == "assistant"] == [
        "main 0",
        "main 1",
        "main 2",
    ]


def test_main_takes_the_branch_delivered_last_where_the_first_request_forked(talk):
    left = talk.say(request(user("q")), "left")
    talk.say(request(user("q")), "right")
    talk.forest.deliver(left)
    assert implicit_context(talk.forest, "main").state is left


# Explicit: the State that a record names


def test_a_record_names_any_state_inner_ones_and_branches_included(talk):
    inner = talk.say(request(user("q")), "a")
    left = talk.say(request(user("q"), assistant("a"), user("l")), "left")
    right = talk.say(request(user("q"), assistant("a"), user("r")), "right")
    for name, state in (("inner", inner), ("left", left), ("right", right)):
        context = explicit_context(talk.forest, name, request(*state.conversation()))
        assert (context.name, context.state, context.complete) == (name, state, True)


def test_a_record_needs_the_tools_and_template_arguments_of_its_turns(talk):
    state = talk.say(request(user("q"), tools=(SEARCH,), kwargs='{"thinking":true}'), "a")
    messages = state.conversation()
    assert explicit_context(talk.forest, "x", request(*messages, tools=(SEARCH,), kwargs='{"thinking":true}'))
    message = refusal(explicit_context, talk.forest, "x", request(*messages))
    assert message == (
        "record 'x' matches no committed State: no Turn used these tools and chat_template_kwargs. "
        "Export them exactly as they were sent"
    )


def test_a_record_may_spell_an_answer_as_the_client_did(talk):
    state = talk.say(request(user("q")), assistant("a", reasoning="hm"))
    assert explicit_context(talk.forest, "x", request(user("q"), assistant(" a"))).state is state


def test_of_siblings_with_the_same_text_the_one_delivered_last_is_exported(talk):
    first = talk.say(request(user("q")), "same", [1])
    talk.say(request(user("q")), "same", [2])
    talk.forest.deliver(first)
    assert explicit_context(talk.forest, "x", request(user("q"), assistant("same"))).state is first


def test_a_record_that_ends_in_an_observation_trains_the_answers_before_it(talk):
    call = assistant("", call="c")
    answer = talk.say(request(user("q")), call)
    talk.say(request(user("q"), call, tool("found", "c")), "b", delivered=False)
    context = explicit_context(talk.forest, "x", request(user("q"), call, tool("found", "c")))
    assert (context.state, context.complete) == (answer, False)
    row = sample(context)
    assert (row.tokens, row.terminal_status) == (answer.lineage_ids(), "truncated")


def test_a_record_that_ends_in_an_answer_is_complete_although_the_agent_asked_on_from_it_without_a_message(talk):
    answer = talk.say(request(user("q")), "a", delivered=False)
    talk.say(request(user("q"), assistant("a")), "b")
    context = explicit_context(talk.forest, "x", request(user("q"), assistant("a")))
    assert (context.state, context.complete) == (answer, True)


def test_a_record_without_any_answer_of_the_model_is_refused(talk):
    answer = talk.say(request(user("q")), "a")
    message = refusal(explicit_context, talk.forest, "x", request(user("q")))
    assert message == f"record 'x' names State {answer.parent.name}, which has no answer of the model in its history"


def test_a_mismatch_names_the_message_the_first_differing_characters_and_the_nearest_state(talk):
    first = talk.say(request(user("q")), "a")
    talk.say(request(user("q"), assistant("a"), user("look up Bern")), "b")
    record = request(user("q"), assistant("a"), user("look up Basel"), assistant("b"))
    assert refusal(explicit_context, talk.forest, "main", record) == (
        f"record 'main' matches no committed State: message 2 of 4 differs; the nearest State is {first.name} "
        "(2 messages); at character 9: committed 'ern', here 'asel'"
    )


def test_a_mismatch_within_a_request_of_several_messages_names_the_right_one(talk):
    talk.say(request(system("s"), user("one")), "a")
    message = refusal(explicit_context, talk.forest, "x", request(system("s"), user("two"), assistant("a")))
    assert "message 1 of 3 differs; no committed conversation begins like this" in message
    assert "at character 0: committed 'one', here 'two'" in message


def test_a_mismatch_in_an_answer_is_shown_against_the_likest_sibling(talk):
    for text in ("nothing alike", "the answer is 4", "else"):
        talk.say(request(user("q")), text)
    message = refusal(explicit_context, talk.forest, "x", request(user("q"), assistant("the answer is four")))
    assert "message 1 of 2 differs" in message
    assert "at character 14: committed '4', here 'four'" in message


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ((user("q"), user("a")), "has another role: committed 'assistant', here 'user'"),
        ((user("q"), assistant("a"), user("r")), "and no Turn continued it with message 2 of 3"),
        ((system("s"),), "has another role: committed 'user', here 'system'"),
    ],
)
def test_a_mismatch_says_what_stands_there_instead(talk, record, expected):
    talk.say(request(user("q")), "a")
    assert expected in refusal(explicit_context, talk.forest, "x", request(*record))


def test_a_record_that_stops_in_the_middle_of_one_requests_messages_is_told_so(talk):
    talk.say(request(system("s"), user("q")), "a")
    message = refusal(explicit_context, talk.forest, "x", request(system("s")))
    assert "it ends in the middle of what one request added" in message


def test_strict_history_refuses_a_record_that_drops_reasoning():
    talk = Talk(strict=True)
    talk.say(request(user("q")), assistant("a", reasoning="hm"))
    message = refusal(explicit_context, talk.forest, "x", request(user("q"), assistant("a")))
    assert "message 1 of 2 differs" in message
    assert "reasoning at character 0: committed 'hm', here ''" in message


# How a Context ended


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        (FinishReason.STOP, "completed"),
        (FinishReason.LENGTH, "truncated"),
        (FinishReason.ABORT, "truncated"),
    ],
)
def test_a_context_is_truncated_when_its_last_answer_was_cut(talk, finish, status):
    talk.say(request(user("q")), "a", finish=FinishReason.LENGTH)
    talk.say(request(user("q"), assistant("a"), user("r")), "b", finish=finish)
    assert terminal_status(implicit_context(talk.forest, "linear")) == status
