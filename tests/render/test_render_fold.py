"""Conversations that templates refuse: folded the same way every time, and counted."""

import re

import pytest
from render_dialogues import LOOKUP, ask, calls, result, says, system, user

from relaxforge.core.messages import Message, ToolCall
from relaxforge.core.turns import token_ids


def opened(renderer, *messages, **fields):
    observation = renderer.open(ask(*messages, **fields))
    return renderer.tokenizer.decode(list(observation.ids)), observation.normalised


def extended(renderer, answer, *messages, **fields):
    request = ask(user("hello"), answer, *messages, **fields)
    observation = renderer.extend(request, 2, token_ids([renderer.stop_token_ids[0]]))
    return renderer.tokenizer.decode(list(observation.ids)), observation.normalised


def test_a_system_role_that_is_refused_goes_into_the_next_user_message(load):
    shown, notes = opened(load("gemma"), system("be brief"), user("hello"))
    assert "<start_of_turn>user\nbe brief\n\nhello<end_of_turn>" in shown
    assert notes == {"system_folded": 1}


def test_a_second_system_message_that_is_refused_is_merged(load):
    shown, notes = opened(load("deepseek_r1_distill"), system("be brief"), system("be kind"), user("hello"))
    assert "be brief\n\nbe kind" in shown
    assert notes == {"system_merged": 1}


@pytest.mark.parametrize("family", ["gemma", "deepseek_r1_distill", "mistral_v3", "mistral_v7"])
def test_a_later_system_message_that_is_refused_goes_into_the_next_user_message(load, family):
    shown, notes = extended(load(family), says("world"), system("3 tokens left"), user("jumps"))
    assert "3 tokens left\n\njumps" in shown
    assert notes == {"system_folded": 1}


@pytest.mark.parametrize("family", ["smollm2", "qwen2_5", "qwen3", "llama3_1"])
def test_a_later_system_message_that_is_taken_stays(load, family):
    shown, notes = extended(load(family), says("world"), system("3 tokens left"), user("jumps"))
    assert "3 tokens left\n\njumps" not in shown
    assert shown.index("3 tokens left") < shown.index("jumps")
    assert notes == {}


def test_system_text_without_a_user_message_behind_it_becomes_one(load):
    shown, notes = extended(load("deepseek_r1_distill"), says("world"), system("3 tokens left"))
    assert "User\uff5c>3 tokens left" in shown
    assert notes == {"system_folded": 1}


def test_user_messages_in_a_row_are_merged_where_roles_must_alternate(load):
    shown, notes = extended(load("gemma"), says("world"), user("the quick"), user("jumps"))
    assert "<start_of_turn>user\nthe quick\n\njumps<end_of_turn>" in shown
    assert notes == {"user_merged": 1}


@pytest.mark.parametrize("family", ["gemma", "mistral_v13"])
def test_an_assistant_message_where_a_user_is_due_gets_an_empty_one(load, family):
    _, at_the_start = opened(load(family), says("welcome"), user("hello"))
    shown, behind_ours = extended(load(family), says("world"), says("not mine"), user("jumps"))
    assert at_the_start == behind_ours == {"empty_user_added": 1}
    assert "not mine" in shown


def test_an_empty_answer_can_stand_in_a_history(renderer):
    shown, notes = opened(renderer, user("hello"), says(""), user("jumps"))
    assert shown.index("hello") < shown.index("jumps")
    assert notes == ({} if renderer.properties.empty_answer else {"empty_answer_padded": 1})


def test_folding_a_suffix_alone_is_folding_it_behind_its_history(load, family):
    renderer = load(family)
    suffix = [system("3 tokens left"), says("not mine"), user("the quick"), system("2 left"), user("jumps")]
    request = ask(system("be brief"), user("hello"), says("world"), *suffix)
    served = token_ids([renderer.stop_token_ids[0]])
    assert "window" not in renderer.compare(request, 3, served, renderer.extend(request, 3, served))


def test_tool_results_become_user_messages_where_there_is_no_tool_role(load):
    shown, notes = extended(load("gemma"), calls("Paris"), result("Paris", "rain"), tools=[LOOKUP])
    assert "<start_of_turn>user\nrain<end_of_turn>" in shown
    assert notes == {"tool_result_as_user": 1}


def test_tool_calls_become_text_where_the_template_does_not_show_them(load):
    shown, notes = opened(load("smollm2"), user("weather?"), calls("Paris"), result("Paris", "rain"), tools=[LOOKUP])
    assert '<tool_call>\n{"name": "lookup", "arguments": {"city": "Paris"}}\n</tool_call>' in shown
    assert notes == {"tool_call_as_text": 1, "tools_not_shown": 1}


def test_parallel_calls_are_split_where_only_one_is_taken(load):
    shown, notes = opened(load("llama3_1"), user("weather?"), calls("Paris", "Rome"), result("Paris", "rain"))
    assert shown.index('"Paris"') < shown.index('"Rome"') < shown.index("rain")
    assert notes == {"parallel_calls_split": 1}


def test_two_results_of_parallel_calls_can_extend_an_answer_where_only_one_call_is_taken(load):
    results = [result("Paris", "rain"), result("Rome", "sun")]
    shown, _ = extended(load("llama3_1"), calls("Paris", "Rome"), *results, tools=[LOOKUP])
    assert shown.index("rain") < shown.index("sun")


@pytest.mark.parametrize("family", ["mistral_v3", "mistral_v7"])
def test_tool_call_ids_are_shortened_the_same_way_in_call_and_result(load, family):
    shown, notes = opened(load(family), user("weather?"), calls("Paris"), result("Paris", "rain"), tools=[LOOKUP])
    assert notes == {"tool_call_id_shortened": 2}
    again, noted = extended(load(family), calls("Paris"), result("Paris", "rain"), tools=[LOOKUP])
    in_call, in_result = re.findall(r"\b[0-9a-f]{9}\b", shown)
    assert in_call == in_result
    assert in_result in again
    assert noted == {"tool_call_id_shortened": 1}


def test_a_user_message_behind_a_tool_result_reaches_every_template(renderer):
    shown, _ = extended(renderer, calls("Paris"), result("Paris", "rain"), user("jumps"), tools=[LOOKUP])
    assert shown.index("rain") < shown.index("jumps")


@pytest.mark.parametrize("arguments", ['{"city":"Paris"}', '"Paris"', "[]", "null", "42", "", "{broken", "[" * 5000])
def test_any_arguments_can_be_rendered(renderer, arguments):
    call = Message("assistant", tool_calls=(ToolCall("call_Paris", "lookup", arguments),))
    shown, notes = opened(renderer, user("weather?"), call, result("Paris", "rain"), tools=[LOOKUP])
    assert "rain" in shown
    assert notes.get("tool_arguments_not_an_object", 0) == (arguments[:2] != '{"')
    added, _ = extended(renderer, call, result("Paris", "rain"), tools=[LOOKUP])
    assert "rain" in added


def test_arguments_of_an_object_are_json_in_every_template_that_shows_calls(renderer):
    shown, _ = opened(renderer, user("weather?"), calls("Paris"), result("Paris", "rain"), tools=[LOOKUP])
    assert '"city": "Paris"' in shown or '"city":"Paris"' in shown or not renderer.properties.tool_role
