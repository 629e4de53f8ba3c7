"""Anthropic Messages: what blocks mean, and answers as blocks."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_gateway import ScriptedSession, say

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Message, TextPart, ToolCall, canonical_arguments
from relaxforge.core.turns import Usage
from relaxforge.gateway.messages import Messages

DATA = base64.b64encode(b"picture").decode()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
USER = {"role": "user", "content": "hi"}
ADD = {"name": "add", "description": "adds", "input_schema": {"type": "object"}}


def read(door=None, **fields):
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [USER], **fields}).encode()
    return Messages("tiny").read(body, {}, door or ScriptedSession("s"))


def messages(*given, **fields):
    return read(messages=list(given), **fields).messages


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def text(said, **rest):
    return {"type": "text", "text": said, **rest}


def result(content, call_id="c1", **rest):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **rest}


def refusal(**fields):
    with pytest.raises(RequestError) as caught:
        read(**fields)
    assert caught.value.status == 400
    return caught.value


def written(turn, **fields):
    return json.loads(Messages("tiny").write(read(**fields), turn))


@pytest.mark.parametrize("system", ["be brief", [text("be "), text("brief", cache_control={"type": "ephemeral"})]])
def test_system_comes_first(system):
    assert messages(USER, system=system) == (Message("system", "be brief"), Message("user", "hi"))


@pytest.mark.parametrize("system", [None, "", [], [text("")]])
def test_no_system_text_is_no_message(system):
    assert messages(USER, system=system) == (Message("user", "hi"),)


def test_a_system_message_may_stand_anywhere():
    later = {"role": "system", "content": [text("note")]}
    assert messages(USER, later, USER)[1] == Message("system", "note")


def test_blocks_of_text_are_joined_with_nothing():
    assert messages(user(text("a "), text("b"), text(""))) == (Message("user", "a b"),)


@pytest.mark.parametrize(
    ("source", "url"),
    [
        (IMAGE["source"], f"data:image/png;base64,{DATA}"),
        ({"type": "url", "url": "https://example.org/a.png"}, "https://example.org/a.png"),
    ],
)
def test_a_user_may_show_images(source, url):
    [message] = messages(user(text("see"), {"type": "image", "source": source}))
    shown, image = message.content
    assert (shown, image.url) == (TextPart("see"), url)
    assert image.where.startswith("messages[0].content[1].source.")


def test_an_answer_is_thinking_text_and_calls():
    blocks = [
        {"type": "thinking", "thinking": "let me see", "signature": "anything"},
        {"type": "redacted_thinking", "data": "opaque"},
        text("I will "),
        text("call"),
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"b": 2, "a": 1.0}},
    ]
    request = read(messages=[USER, {"role": "assistant", "content": blocks}])
    calls = (ToolCall("c1", "add", '{"a":1,"b":2}'),)
    assert request.messages[1] == Message("assistant", "I will call", "let me see", calls)
    assert request.normalised == {"block_ignored:redacted_thinking": 1}


@pytest.mark.parametrize("signature", [{}, {"signature": None}, {"signature": "foreign"}, {"signature": ""}])
def test_a_signature_may_be_missing_or_foreign(signature):
    blocks = [{"type": "thinking", "thinking": "t", **signature}, text("x")]
    assert messages(USER, {"role": "assistant", "content": blocks})[1] == Message("assistant", "x", "t")


def test_neighbouring_assistant_messages_are_one_turn():
    one = {"role": "assistant", "content": "I will call"}
    two = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    assert messages(USER, one, two)[1:] == (Message("assistant", "I will call", "", (ToolCall("c", "f", "{}"),)),)


@pytest.mark.parametrize("content", ["", None, [], [text("")], [{"type": "thinking", "thinking": ""}]])
def test_an_empty_answer_can_be_echoed(content):
    assert messages(USER, {"role": "assistant", "content": content})[1] == Message("assistant")


def test_tool_results_keep_their_place_and_text_around_them_is_the_users():
    content = user(text("before"), result("1"), result([text("2"), text("3")], "c2"), text("after"))
    assert messages(content) == (
        Message("user", "before"),
        Message("tool", "1", tool_call_id="c1"),
        Message("tool", "23", tool_call_id="c2"),
        Message("user", "after"),
    )


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (result(None), ""),
        (result([]), ""),
        (result([text("")]), ""),
        (result("failed", is_error=True), "failed"),
        (result([], is_error=True), "error"),
        (result(""), ""),
        ({"type": "tool_result", "tool_use_id": "c1"}, ""),
        (result([{"type": "tool_reference", "tool_name": "x"}, text("y")]), "y"),
    ],
)
def test_what_a_tool_said(block, content):
    assert messages(user(block)) == (Message("tool", content, tool_call_id="c1"),)


def test_a_tool_may_show_images():
    [message] = messages(user(result([text("a"), IMAGE])))
    assert (message.role, message.images[0].where) == ("tool", "messages[0].content[0].content[1].source.data")


def test_blocks_that_cannot_be_shown_are_skipped_and_noted_once():
    door = ScriptedSession("s")
    given = [user({"type": "document", "source": {}}, text("hi")), user({"type": "search_result"})]
    request = read(door, messages=given)
    assert request.messages == (Message("user", "hi"),)
    assert request.normalised == {"block_ignored:document": 1, "block_ignored:search_result": 1}
    assert read(door, messages=given).normalised == {}


def test_tools_with_a_schema_are_functions():
    request = read(tools=[ADD, {**ADD, "type": "custom", "name": "two", "cache_control": {}}, {"name": "three"}])
    assert [(tool.name, tool.description) for tool in request.tools] == [
        ("add", "adds"), ("two", "adds"), ("three", None),
    ]  # fmt: skip


def test_tools_that_a_server_would_run_are_dropped_and_noted():
    request = read(tools=[{"type": "web_search_20250305", "name": "web_search"}, ADD])
    assert [tool.name for tool in request.tools] == ["add"]
    assert request.normalised == {"tool_type_ignored:web_search_20250305": 1}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role"),
        ({"messages": [USER, {"role": "user", "content": 3}]}, "messages[1].content"),
        ({"messages": [user()]}, "messages[0].content"),
        ({"messages": [user("x")]}, "messages[0].content[0]"),
        ({"messages": [user({"text": "x"})]}, "messages[0].content[0]"),
        ({"messages": [user(text(3))]}, "messages[0].content[0].text"),
        ({"messages": [user({"type": "image"})]}, "messages[0].content[0].source"),
        ({"messages": [user({"type": "image", "source": {**IMAGE["source"], "data": "*"}})]},
         "messages[0].content[0].source.data"),
        ({"messages": [user({"type": "image", "source": {"type": "url", "url": "file:///x"}})]},
         "messages[0].content[0].source.url"),
        ({"messages": [user({"type": "tool_use", "id": "c", "name": "f", "input": {}})]}, "messages[0].content[0]"),
        ({"messages": [user({"type": "tool_result", "content": "x"})]}, "messages[0].content[0].tool_use_id"),
        ({"messages": [user(result(3))]}, "messages[0].content[0].content"),
        ({"messages": [user(result("x", is_error="yes"))]}, "messages[0].content[0].is_error"),
        ({"messages": [{"role": "assistant", "content": [IMAGE]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": 3}]}]},
         "messages[0].content[0].thinking"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": "x"}]}]},
         "messages[0].content[0].input"),
        ({"messages": [user({"type": "document"})]}, "messages"),
        ({"system": 3}, "system"),
        ({"system": [IMAGE]}, "system"),
        ({"system": ["x"]}, "system[0]"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "f", "input_schema": 3}]}, "tools[0].input_schema"),
        ({"thinking": "on"}, "thinking"),
        ({"thinking": {"budget_tokens": 5}}, "thinking.type"),
        ({"output_config": {"effort": 3}}, "output_config.effort"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stream": 1}, "stream"),
    ],
)  # fmt: skip
def test_a_wrong_shape_is_refused_by_its_path(fields, param):
    error = refusal(**fields)
    assert error.param == param
    assert param.split("[")[0] in str(error)


@pytest.mark.parametrize(
    ("fields", "kwargs"),
    [
        ({}, "{}"),
        ({"thinking": {"type": "disabled"}}, '{"reasoning_effort":"none"}'),
        ({"thinking": {"type": "enabled"}}, '{"reasoning_effort":"medium"}'),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, '{"reasoning_effort":"medium"}'),
        ({"thinking": {"type": "adaptive"}}, '{"reasoning_effort":"medium"}'),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, '{"reasoning_effort":"max"}'),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}}, '{"reasoning_effort":"none"}'),
        ({"output_config": {"effort": "low"}}, '{"reasoning_effort":"low"}'),
        ({"thinking": {"type": "enabled"}, "chat_template_kwargs": {"x": 1}}, '{"reasoning_effort":"medium","x":1}'),
    ],
)
def test_thinking_is_a_template_argument(fields, kwargs):
    assert read(**fields).template_kwargs == kwargs


def test_a_wish_about_thinking_that_is_unknown_is_ignored():
    request = read(thinking={"type": "sometimes"})
    assert (request.template_kwargs, request.normalised) == ("{}", {"ignored_field:thinking": 1})


def test_a_complete_answer():
    call = ToolCall("c1", "add", '{"a":123456789012345678901234567890}')
    message = Message("assistant", "four", "2+2", (call,))
    answer = written(say(message=message, finish="tool_calls", usage=Usage(11, 5, 8)))
    thinking, said, use = answer["content"]
    assert (thinking["type"], thinking["thinking"]) == ("thinking", "2+2")
    assert thinking["signature"]
    assert said == {"type": "text", "text": "four"}
    big = 123456789012345678901234567890
    assert use == {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": big}}
    assert (answer["id"], answer["type"], answer["role"], answer["model"]) == ("msg_r0", "message", "assistant", "m")
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("tool_use", None)
    assert answer["usage"] == {
        "input_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 8,
        "output_tokens": 5,
    }


@pytest.mark.parametrize(
    ("turn", "ending"),
    [
        ({"finish": "stop"}, ("end_turn", None)),
        ({"finish": "length"}, ("max_tokens", None)),
        ({"finish": "stop", "stop_match": "END"}, ("stop_sequence", "END")),
        ({"finish": "stop", "stop_match": "other"}, ("end_turn", None)),
        ({"finish": "tool_calls", "stop_match": "END"}, ("tool_use", None)),
    ],
)
def test_why_an_answer_ended(turn, ending):
    answer = written(say("x", **turn), stop_sequences=["END"])
    assert (answer["stop_reason"], answer["stop_sequence"]) == ending


texts = st.text()
arguments = st.sampled_from(["{}", '{"a": 1}', "junk", "[1]", '"x"', '{"_raw_arguments":"x"}', '{"a": NaN}'])
calls = st.builds(ToolCall, texts, texts, arguments.map(canonical_arguments))
answers = st.builds(Message, st.just("assistant"), texts, texts, st.lists(calls, max_size=3).map(tuple))


@given(answers)
def test_every_answer_comes_back_as_itself(message):
    content = written(say(message=message))["content"]
    [_, echo] = messages(USER, {"role": "assistant", "content": content})
    expected = [call.arguments for call in message.tool_calls]
    if '{"_raw_arguments":"x"}' not in expected:  # The one spelling that is taken; the model would have to invent it.
        assert echo.exact == message.exact


def test_moving_cache_marks_change_nothing():
    door = ScriptedSession("s")
    marked = text("hi", cache_control={"type": "ephemeral"})
    first = read(
        door, system=[text("s", cache_control={})], messages=[user(marked)], tools=[{**ADD, "cache_control": {}}]
    )
    second = read(door, system=[text("s")], messages=[user(text("hi")), USER], tools=[ADD])
    assert first.seed_digest == second.seed_digest
    assert all(one is other for one, other in zip(first.messages, second.messages[:2], strict=True))


def test_counting_teaches_the_session_nothing():
    door = ScriptedSession("s")
    body = {"model": "m", "messages": [user({"type": "document"}, text("hi"))], "temperature": 1}
    Messages("tiny").read_to_count(json.dumps(body).encode(), {}, door)
    assert (door.known, door.known_tools, door.known_fields) == ({}, {}, set())
    assert read(door, **body).normalised == {"block_ignored:document": 1, "ignored_field:temperature": 1}
