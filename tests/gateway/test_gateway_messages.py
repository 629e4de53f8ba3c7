"""What a history means: roles, content, tool calls, and the many spellings of one message."""

import base64
import hashlib
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_gateway import ScriptedSession

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import ImagePart, Message, TextPart, ToolCall
from relaxforge.gateway.canonical import read_message
from relaxforge.gateway.reading import Reading

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


def read_all(raws, door=None):
    """Messages, keys and notes of a history, through the same door as a request's bytes."""
    reading = Reading("chat", door or ScriptedSession("s"))
    history, keys = reading.history(raws, "messages", read_message)
    return history, keys, dict(reading.keep())


def read(value):
    """The message, and what had to be changed."""
    (message,), _, noted = read_all([json.dumps(value).encode()])
    return message, noted


def refusal(value):
    with pytest.raises(RequestError) as caught:
        read(value)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize("role", ["system", "user"])
def test_plain_messages(role):
    assert read({"role": role, "content": "text"}) == (Message(role, "text"), {})


def test_developer_is_system_and_counted():
    assert read({"role": "developer", "content": "rules"}) == (Message("system", "rules"), {"developer_role": 1})


@pytest.mark.parametrize("role", ["function", "", None, 3, ["user"], {"a": 1}])
def test_an_unknown_role_names_the_known_ones(role):
    error = refusal({"role": role, "content": "x"})
    assert error.param == "messages[0].role"
    for known in ("system", "user", "assistant", "tool", "developer"):
        assert known in str(error)


@pytest.mark.parametrize("value", ["text", 3, None, []])
def test_a_message_must_be_an_object(value):
    assert refusal(value).param == "messages[0]"


@pytest.mark.parametrize("role", ["system", "user", "tool", "developer"])
@pytest.mark.parametrize("content", ["", None, []])
def test_content_must_not_be_empty_outside_the_assistant(role, content):
    assert refusal({"role": role, "content": content, "tool_call_id": "c"}).param == "messages[0].content"


def test_missing_content_is_empty_content():
    assert refusal({"role": "user"}).param == "messages[0].content"


def test_empty_parts_do_not_matter_beside_others():
    empty, text = {"type": "text", "text": ""}, {"type": "text", "text": "a"}
    assert read({"role": "user", "content": [empty, text, empty]})[0] == Message("user", "a")
    assert refusal({"role": "user", "content": [empty, empty]}).param == "messages[0].content"


@pytest.mark.parametrize("content", [" ", "\n\t", "\x00", "a\x00b"])
def test_white_space_and_nul_are_content(content):
    assert read({"role": "user", "content": content})[0].content == content


@pytest.mark.parametrize("content", [3, True, {"text": "x"}])
def test_content_of_another_kind_is_refused(content):
    assert refusal({"role": "user", "content": content}).param == "messages[0].content"


@pytest.mark.parametrize(
    "part",
    ["text", 3, {"type": "text"}, {"type": "text", "text": 3}, {"type": "input_audio"}, {"type": "image_url"},
     {"type": "image_url", "image_url": "http://x"}],
)  # fmt: skip
def test_an_unknown_part_is_refused(part):
    assert refusal({"role": "user", "content": [part]}).param == "messages[0].content[0]"


def test_text_parts_are_joined_with_nothing_between():
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]
    assert read({"role": "user", "content": parts}) == (Message("user", "a b"), {"content_parts": 1})


def test_an_image_keeps_its_parts_and_is_identified_by_its_bytes():
    data = base64.b64encode(b"picture").decode()
    picture, address = f"data:image/png;base64,{data}", "https://example.org/a.png"
    content = [
        {"type": "image_url", "image_url": {"url": picture, "detail": "low"}},
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": address}},
    ]
    message, _ = read({"role": "user", "content": content})
    assert message.content == (
        ImagePart(picture, hashlib.sha256(b"picture").hexdigest()),
        TextPart("what is it?"),
        ImagePart(address, hashlib.sha256(address.encode()).hexdigest()),
    )


@pytest.mark.parametrize("url", ["file:///etc/passwd", "data:image/png;base64,***", "data:text/html;base64,YQ==", ""])
def test_an_image_must_be_inline_or_on_the_web(url):
    error = refusal({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
    assert error.param == "messages[0].content[0].image_url.url"


def test_only_users_and_tools_show_images():
    image = [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]
    assert read({"role": "tool", "tool_call_id": "c", "content": image})[0].images
    for role in ("system", "assistant"):
        assert refusal({"role": role, "content": image}).param == "messages[0].content"


@pytest.mark.parametrize("call_id", [None, "", 3])
def test_a_tool_message_names_its_call(call_id):
    assert refusal({"role": "tool", "content": "3", "tool_call_id": call_id}).param == "messages[0].tool_call_id"


def test_a_tool_message():
    assert read({"role": "tool", "content": "3", "tool_call_id": "c1", "name": "add"})[0] == Message(
        "tool", "3", tool_call_id="c1"
    )


@pytest.mark.parametrize("fields", [{}, {"content": None}, {"content": ""}, {"content": []}, {"tool_calls": []}])
def test_an_empty_assistant_message_is_an_answer_too(fields):
    assert read({"role": "assistant", **fields})[0].exact == Message("assistant").exact


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_under_either_name(name):
    assert read({"role": "assistant", "content": "4", name: "2+2"})[0] == Message("assistant", "4", "2+2")


def test_reasoning_content_wins_over_reasoning():
    message, _ = read({"role": "assistant", "reasoning_content": "a", "reasoning": "b"})
    assert message.reasoning == "a"


@pytest.mark.parametrize(
    ("arguments", "canonical"),
    [
        ('{"b": 2, "a": 1}', '{"a":1,"b":2}'),
        ({"b": 2.0, "a": "x"}, '{"a":"x","b":2}'),
        ('{"a": 1, "a": 2}', '{"a":2}'),
        ('{"n": 123456789012345678901234567890}', '{"n":123456789012345678901234567890}'),
        ('{"n": 9007199254740993}', '{"n":9007199254740993}'),
        ("", "{}"),
        (None, "{}"),
        ("  \n", "{}"),
        ("[1, 2]", "[1, 2]"),
        ('"text"', '"text"'),
        ("null", "null"),
        ('{"a": ', '{"a": '),
        ('{"a": NaN}', '{"a": NaN}'),
        ('{"a": 1e999}', '{"a": 1e999}'),
        ("[" * 5000, "[" * 5000),
        ('{"a":' * 300 + "1" + "}" * 300, '{"a":' * 300 + "1" + "}" * 300),
        ('{"n": ' + "9" * 5000 + "}", '{"n": ' + "9" * 5000 + "}"),
        ("not json \\ud800", "not json \\ud800"),
    ],
)
def test_arguments_become_canonical_json_or_stay_as_they_are(arguments, canonical):
    call = {**CALL, "function": {"name": "add", "arguments": arguments}}
    message, noted = read({"role": "assistant", "tool_calls": [call]})
    assert message.tool_calls == (ToolCall("c1", "add", canonical),)
    assert noted == {}


def test_a_broken_call_of_the_model_can_be_echoed():
    message, _ = read({"role": "assistant", "tool_calls": [{"function": {"name": None}}, {"id": None}]})
    assert message.tool_calls == (ToolCall("", "", "{}"), ToolCall("", "", "{}"))


@pytest.mark.parametrize(
    ("calls", "param"),
    [
        ({}, "messages[0].tool_calls"),
        ([3], "messages[0].tool_calls[0]"),
        ([{"type": "custom"}], "messages[0].tool_calls[0]"),
        ([CALL, {**CALL, "id": 3}], "messages[0].tool_calls[1].id"),
        ([{**CALL, "function": "add"}], "messages[0].tool_calls[0].function"),
        ([{**CALL, "function": {"name": 3}}], "messages[0].tool_calls[0].function.name"),
        ([{**CALL, "function": {"name": "f", "arguments": [1]}}], "messages[0].tool_calls[0].function.arguments"),
    ],
)
def test_bad_tool_calls(calls, param):
    assert refusal({"role": "assistant", "tool_calls": calls}).param == param


def test_lone_surrogates_become_replacement_characters_and_are_counted():
    message, noted = read({"role": "user", "content": "a\ud800b\udfff\ud83d\ude00"})
    assert message.content == "a\ufffdb\ufffd\U0001f600"
    assert noted == {"lone_surrogate": 2}


def test_lone_surrogates_inside_arguments_too():
    call = {**CALL, "function": {"name": "f", "arguments": json.dumps({"k\ud800": "\udc00", "fine": "\ufffd"})}}
    message, noted = read({"role": "assistant", "tool_calls": [call]})
    assert message.tool_calls[0].arguments == '{"fine":"\ufffd","k\ufffd":"\ufffd"}'
    assert noted == {"lone_surrogate": 2}


@pytest.mark.parametrize("bad", [b'{"role":"user","content":NaN}', b'{"role":"user","x":-Infinity}', b'{"x":1e999}'])
def test_numbers_that_are_none_are_refused(bad):
    with pytest.raises(RequestError) as caught:
        read_all([bad])
    assert caught.value.param == "messages[0]"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), json_values, max_size=4)
known_names = {"role", "content", "reasoning", "reasoning_content", "tool_calls", "tool_call_id"}
extras = st.dictionaries(st.text().filter(lambda name: name not in known_names), json_values, max_size=2)


@st.composite
def echoes(draw):
    """One assistant message and the same one as another client would spell it."""
    text, reasoning = draw(st.text()), draw(st.text())
    calls = draw(st.lists(st.tuples(st.text(), st.text(), objects), max_size=2))
    indent, shuffled = draw(st.sampled_from([None, 1, 4])), draw(st.booleans())

    def respelled(arguments):
        items = list(arguments.items())
        return json.dumps(dict(reversed(items) if shuffled else items), indent=indent, ensure_ascii=draw(st.booleans()))

    def shape(content, spell, extra):
        message = {"role": "assistant", "content": content, **extra}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = [
                {"id": call, "type": "function", "function": {"name": name, "arguments": spell(arguments)}}
                for call, name, arguments in calls
            ]
        return message

    spelled = draw(st.sampled_from([text, [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]]))
    if not text:
        spelled = draw(st.sampled_from(["", None, []]))
    other = shape(spelled, respelled, draw(extras))
    if spelled is None and draw(st.booleans()):
        del other["content"]
    return shape(text, json.dumps, {}), other


@given(echoes())
def test_every_echo_variant_is_the_same_message(pair):
    original, echo = pair
    assert read(original)[0].exact == read(echo)[0].exact


@given(objects)
def test_reading_canonical_arguments_again_changes_nothing(arguments):
    once = read({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]})[0]
    [call] = once.tool_calls
    twice = read({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": call.arguments}}]})[0]
    assert once.exact == twice.exact


@given(st.lists(st.text(min_size=1), min_size=1, max_size=6))
def test_raw_bytes_seen_before_give_the_identical_objects(texts):
    raws = [json.dumps({"role": "user", "content": text}).encode() for text in texts]
    door = ScriptedSession("s")
    first, keys, _ = read_all(raws, door)
    second, same, _ = read_all(raws, door)
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert keys == same


def test_equal_messages_are_one_object_however_they_are_spelled():
    raws = [b'{"role":"user","content":"x"}', b'{"content": [{"type":"text","text":"x"}], "role": "user", "name": "n"}']
    (first, second), *_ = read_all(raws)
    assert first is second


def test_a_message_the_session_already_holds_is_used():
    held = Message("assistant", "answer")
    door = ScriptedSession("s")
    door.known[held.exact] = held
    (echo,), *_ = read_all([b'{"role":"assistant","content":"answer"}'], door)
    assert echo is held


def test_read_message_says_where():
    with pytest.raises(RequestError) as caught:
        read_message({"role": "user", "content": ""}, "record.messages[7]", Counter())
    assert caught.value.param == "record.messages[7].content"
