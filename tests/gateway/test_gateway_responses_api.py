"""OpenAI Responses: what items mean, and answers as items."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_gateway import ScriptedSession, say

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import ImagePart, Message, TextPart, ToolCall
from relaxforge.core.turns import Usage
from relaxforge.gateway.responses import Responses

PICTURE = "data:image/png;base64," + base64.b64encode(b"picture").decode()
USER = {"role": "user", "content": "hi"}
ADD = {"type": "function", "name": "add", "description": "adds", "parameters": {"type": "object"}, "strict": True}
EXEC = {"type": "custom", "name": "exec", "description": "runs"}


def read(door=None, **fields):
    body = json.dumps({"model": "m", "input": [USER], **fields}).encode()
    return Responses("tiny").read(body, {}, door or ScriptedSession("s"))


def messages(*items, **fields):
    return read(input=list(items), **fields).messages


def refusal(**fields):
    with pytest.raises(RequestError) as caught:
        read(**fields)
    assert caught.value.status == 400
    return caught.value


def written(turn, **fields):
    return json.loads(Responses("tiny").write(read(**fields), turn))


def test_a_string_is_one_user_message():
    assert read(input="hi").messages == (Message("user", "hi"),)


def test_instructions_come_first():
    assert messages(USER, instructions="rules") == (Message("system", "rules"), Message("user", "hi"))


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_and_developer_are_system(role):
    item = {"type": "message", "role": role, "content": [{"type": "input_text", "text": "rules"}]}
    assert messages(item, USER)[0] == Message("system", "rules")


def test_parts_of_text_are_joined_with_nothing():
    parts = [{"type": "output_text", "text": "a "}, {"type": "refusal", "refusal": "no"}]
    assert messages({"role": "assistant", "content": parts}) == (Message("assistant", "a no"),)


def test_a_user_may_show_images():
    content = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PICTURE, "detail": "low"}]
    [message] = messages({"role": "user", "content": content})
    [text, image] = message.content
    assert (text, image.url) == (TextPart("see"), PICTURE)
    assert image.where == "input[0].content[1].image_url"


def test_an_answer_over_several_items_is_one_message():
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "think"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I will "}]},
        {"type": "message", "role": "assistant", "content": "call"},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"b": 2, "a": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "not json"},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "bad"}]},
    ]
    calls = (ToolCall("c1", "add", '{"a":1,"b":2}'), ToolCall("c2", "add", "not json"))
    assert messages(USER, *items) == (
        Message("user", "hi"),
        Message("assistant", "I will call", "think", calls),
        Message("tool", "3", tool_call_id="c1"),
        Message("tool", "bad", tool_call_id="c2"),
    )


def test_answers_apart_stay_apart():
    one, two = {"role": "assistant", "content": "1"}, {"role": "assistant", "content": "2"}
    assert [message.text for message in messages(one, USER, two)] == ["1", "hi", "2"]


def test_a_summary_wins_over_content_and_several_texts_get_a_blank_line():
    item = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
        "content": [{"type": "reasoning_text", "text": "c"}],
    }
    assert messages(item, {"role": "assistant", "content": "x"}) == (Message("assistant", "x", "a\n\nb"),)


@pytest.mark.parametrize("item", [{"summary": []}, {"encrypted_content": "opaque"}, {"summary": None, "content": []}])
def test_reasoning_that_cannot_be_read_means_nothing(item):
    request = read(input=[{"type": "reasoning", **item}, {"role": "assistant", "content": "x"}])
    assert request.messages == (Message("assistant", "x"),)
    assert request.normalised == {"reasoning_unreadable": 1}


def test_tool_output_may_be_empty_orphaned_or_an_image():
    outputs = [
        {"type": "function_call_output", "call_id": "c", "output": ""},
        {"type": "function_call_output", "call_id": "c", "output": []},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": PICTURE}]},
    ]
    empty, listed, shown = messages(*outputs)
    assert empty == listed == Message("tool", "", tool_call_id="c")
    assert shown.images


def test_unknown_items_and_parts_are_skipped_and_noted_once():
    items = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
        {"role": "user", "content": [{"type": "input_file", "file_id": "f"}, {"type": "input_text", "text": "hi"}]},
    ]
    door = ScriptedSession("s")
    request = read(door, input=items)
    assert request.messages == (Message("user", "hi"),)
    assert request.normalised == {"item_ignored:web_search_call": 1, "part_ignored:input_file": 2}
    assert read(door, input=items).normalised == {}


def test_tools_are_flat_here():
    request = read(tools=[ADD, {"type": "web_search"}, {"type": "image_generation"}])
    [tool] = request.tools
    assert (tool.name, tool.description, tool.parameters) == ("add", "adds", '{"type":"object"}')
    assert request.normalised == {"tool_type_ignored:web_search": 1, "tool_type_ignored:image_generation": 1}


def test_a_custom_tool_is_called_with_text_and_answers_in_its_own_kind():
    call = ToolCall("c1", "exec", '{"input":"ls -l"}')
    answer = written(say(message=Message("assistant", tool_calls=(call,)), finish="tool_calls"), tools=[EXEC])
    [item] = answer["output"]
    assert (item["type"], item["name"], item["input"], item["call_id"]) == ("custom_tool_call", "exec", "ls -l", "c1")
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "total 0"}
    echo, result = messages(item, output, tools=[EXEC])
    assert echo == Message("assistant", tool_calls=(call,))
    assert result == Message("tool", "total 0", tool_call_id="c1")


def test_the_grammar_of_a_custom_tool_is_told_to_the_model():
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
    [tool] = read(tools=[{**EXEC, "format": grammar}]).tools
    assert tool.description == "runs\n\nThe input follows this grammar:\nstart: WORD"


@pytest.mark.parametrize("arguments", ['{"command":"ls"}', '{"input":3}', "ls", '{"input":"a","x":1}', "[]"])
def test_a_custom_call_that_is_no_text_comes_back_unchanged(arguments):
    call = ToolCall("c1", "exec", arguments)
    [item] = written(say(message=Message("assistant", tool_calls=(call,))), tools=[EXEC])["output"]
    assert item["type"] == "function_call"
    assert messages(item, tools=[EXEC]) == (Message("assistant", tool_calls=(call,)),)


def test_tools_in_a_namespace_keep_it():
    space = {
        "type": "namespace",
        "name": "functions",
        "description": "d",
        "tools": [EXEC, ADD, {"type": "local_shell"}],
    }
    request = read(tools=[space])
    assert [tool.name for tool in request.tools] == ["functions.exec", "functions.add"]
    calls = (ToolCall("c1", "functions.exec", '{"input":"ls"}'), ToolCall("c2", "functions.add", "{}"))
    first, second = written(say(message=Message("assistant", tool_calls=calls)), tools=[space])["output"]
    assert (first["type"], first["namespace"], first["name"]) == ("custom_tool_call", "functions", "exec")
    assert (second["type"], second["namespace"], second["name"]) == ("function_call", "functions", "add")
    assert messages(first, second, tools=[space]) == (Message("assistant", tool_calls=calls),)


def test_tools_may_come_inside_the_input():
    brought = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "namespace", "name": "functions", "tools": [EXEC]}],
    }
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]}
    door = ScriptedSession("s")
    for _ in range(2):
        request = read(door, input=[brought, developer, developer, USER], tools=[ADD])
        assert [tool.name for tool in request.tools] == ["add", "functions.exec"]
        assert [message.role for message in request.messages] == ["system", "system", "user"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["hi"]}, "input[0]"),
        ({"input": [{}]}, "input[0].type"),
        ({"input": [{"type": 3}]}, "input[0].type"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": ["user"], "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": {"a": 1}}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": ["x"]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 1}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
         "input[0].content[0].image_url"),
        ({"input": [{"role": "system", "content": [{"type": "input_image", "image_url": PICTURE}]}]},
         "input[0].content"),
        ({"input": [USER, {"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[1].call_id"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": 3}]}, "input[0].name"),
        ({"input": [{"type": "function_call", "call_id": "c", "arguments": [1]}]}, "input[0].arguments"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "input": {}}]}, "input[0].input"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": 3}]}, "input[0].output"),
        ({"input": [{"type": "reasoning", "summary": "x"}]}, "input[0].summary"),
        ({"input": [{"type": "reasoning", "content": [{"text": 3}]}]}, "input[0].content[0].text"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [USER, {"type": "compaction_trigger"}]}, "input[1].type"),
        ({"input": [{"type": "web_search_call"}]}, "input"),
        ({"input": [{"type": "additional_tools", "tools": 3}, USER]}, "input[0].tools"),
        ({"instructions": ["x"]}, "instructions"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": {"id": "c"}}, "conversation"),
        ({"tools": {}}, "tools"),
        ({"tools": [3]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "namespace", "tools": []}]}, "tools[0].name"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}]}, "tools[0].tools[0].name"),
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"chat_template_kwargs": {"tools": 1}}, "chat_template_kwargs.tools"),
    ],
)  # fmt: skip
def test_a_wrong_shape_is_refused_by_its_path(fields, param):
    error = refusal(**fields)
    assert error.param == param
    assert param.split("[")[0] in str(error)


def test_a_conversation_kept_elsewhere_is_a_clear_no():
    assert "send the full input" in str(refusal(previous_response_id="resp_1"))


@pytest.mark.parametrize(("reasoning", "kwargs"), [({"effort": "high"}, '{"reasoning_effort":"high"}'), ({}, "{}")])
def test_effort_is_a_template_argument(reasoning, kwargs):
    assert read(reasoning=reasoning).template_kwargs == kwargs


def test_an_argument_of_the_template_wins_over_the_effort():
    request = read(reasoning={"effort": "high"}, chat_template_kwargs={"reasoning_effort": "low"})
    assert request.template_kwargs == '{"reasoning_effort":"low"}'


def test_everything_codex_sends_is_accepted():
    request = read(
        client_metadata={"a": "b"}, include=["reasoning.encrypted_content"], instructions="You are", store=False,
        parallel_tool_calls=True, prompt_cache_key="k", reasoning={"effort": "medium", "summary": "auto"}, stream=True,
        tool_choice="auto", tools=[ADD, {"type": "web_search", "external_web_access": False}],
    )  # fmt: skip
    assert request.stream
    ignored = {"client_metadata", "include", "store", "parallel_tool_calls", "prompt_cache_key"}
    assert request.normalised == {"tool_type_ignored:web_search": 1} | {f"ignored_field:{name}": 1 for name in ignored}


def test_a_complete_answer():
    message = Message("assistant", "four", "2+2", (ToolCall("c1", "add", '{"a":1}'),))
    answer = written(say(message=message, finish="tool_calls", usage=Usage(11, 5, 8)))
    reasoning, text, call = answer["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "2+2"}]
    assert text["content"][0]["text"] == "four"
    assert (call["type"], call["call_id"], call["arguments"]) == ("function_call", "c1", '{"a":1}')
    assert [item["id"] for item in answer["output"]] == ["rs_r0", "msg_r0", "fc_r0_0"]
    assert (answer["id"], answer["status"], answer["model"]) == ("resp_r0", "completed", "m")
    assert answer["incomplete_details"] is None
    assert answer["usage"] == {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 16,
    }


def test_an_answer_cut_by_its_budget_is_incomplete():
    answer = written(say("half", finish="length"))
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["output"][0]["status"] == "incomplete"


texts = st.text()
calls = st.builds(ToolCall, st.text(min_size=1), texts, st.sampled_from(["{}", '{"a":1}', "junk", "[1]", '"x"']))
answers = st.builds(Message, st.just("assistant"), texts, texts, st.lists(calls, max_size=3).map(tuple))


@given(answers)
def test_every_answer_comes_back_as_itself(message):
    output = written(say(message=message))["output"]
    assert [found.exact for found in messages(USER, *output)[1:]] == [message.exact]
    for item in output:
        del item["id"], item["status"]
    assert [found.exact for found in messages(USER, *output)[1:]] == [message.exact]


def test_an_unchanged_history_gives_the_identical_objects():
    door = ScriptedSession("s")
    items = [
        USER,
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
        {"role": "assistant", "content": "x"},
    ]
    first, second = (read(door, input=items, instructions="rules").messages for _ in range(2))
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_an_image_is_the_same_whichever_api_showed_it():
    [message] = messages({"role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]})
    assert message == Message("user", (ImagePart(PICTURE, message.images[0].digest),))
