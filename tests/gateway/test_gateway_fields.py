"""Request fields beside the messages."""

import json

import pytest

TOOL = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}


def error_of(answer):
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


def test_absent_and_null_mean_the_same(post, session):
    post()
    post(tools=None, chat_template_kwargs=None, max_tokens=None, stop=None, seed=None, logprobs=None, stream=None)
    first, second = session.requests
    for request in (first, second):
        assert request.tools == ()
        assert request.template_kwargs == "{}"
        assert request.max_tokens is None
        assert request.stop == ()
        assert request.seed is None
        assert request.logprobs is False
    assert first.retry.body != second.retry.body, "bodies differ even where meanings do not"


def test_the_newer_limit_wins_and_only_then_the_older_one_is_looked_at(post, session):
    post(max_completion_tokens=5, max_tokens="nonsense")
    assert session.request.max_tokens == 5
    post(max_tokens=6)
    assert session.request.max_tokens == 6


@pytest.mark.parametrize("name", ["max_completion_tokens", "max_tokens"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "8", [8], 2**70])
def test_a_limit_must_be_a_positive_integer(post, session, name, value):
    assert error_of(post(**{name: value}))["param"] == name
    assert not session.requests


@pytest.mark.parametrize(
    ("value", "stops"), [("\n", ("\n",)), (["a", "b"], ("a", "b")), ([], ()), (["x"] * 16, ("x",) * 16)]
)
def test_stop_strings(post, session, value, stops):
    post(stop=value)
    assert session.request.stop == stops


@pytest.mark.parametrize("value", ["", [""], ["a", 1], {"a": 1}, 3, False, ["x"] * 17])
def test_bad_stop_strings(post, value):
    assert error_of(post(stop=value))["param"] == "stop"


@pytest.mark.parametrize("value", [0, -7, 2**63 - 1])
def test_any_integer_is_a_seed(post, session, value):
    post(seed=value)
    assert session.request.seed == value


@pytest.mark.parametrize("value", [True, 1.0, "1", 2**63])
def test_bad_seeds(post, value):
    assert error_of(post(seed=value))["param"] == "seed"


@pytest.mark.parametrize("name", ["logprobs", "stream"])
@pytest.mark.parametrize("value", [1, "true", []])
def test_switches_are_true_or_false(post, name, value):
    assert error_of(post(**{name: value}))["param"] == name


def test_tools_are_reduced_to_what_a_template_renders(post, session):
    post(tools=[{**TOOL, "strict": True, "function": {**TOOL["function"], "strict": True}}])
    [tool] = session.request.tools
    assert (tool.name, tool.description, json.loads(tool.parameters)) == ("add", "adds", {"type": "object"})
    post(tools=[{"type": "function", "function": {"name": "now"}}])
    [tool] = session.request.tools
    assert tool.description is None
    assert json.loads(tool.parameters) == {"type": "object", "properties": {}}


def test_tools_of_other_types_are_dropped_and_counted_once(post, session):
    tools = [{"type": "web_search"}, TOOL, {"type": "custom", "custom": {"name": "x"}}]
    post(tools=tools)
    assert [tool.name for tool in session.request.tools] == ["add"]
    assert session.request.normalised == {"tool_type_ignored:web_search": 1, "tool_type_ignored:custom": 1}
    first = session.request.tools
    post(tools=tools)
    assert session.request.normalised == {}
    assert session.request.tools is first, "an unchanged tool list is not read again"


def test_the_spelling_of_a_schema_does_not_change_the_tool(post, session):
    function = {"name": "f", "parameters": {"type": "object", "minimum": 1.0, "a": 1}}
    spelled_otherwise = {"parameters": {"a": 1, "minimum": 1, "type": "object"}, "name": "f", "description": None}
    post(tools=[{"type": "function", "function": function}])
    post(tools=[{"function": spelled_otherwise, "cache_control": {"type": "ephemeral"}}])
    first, second = session.requests
    assert first.seed_digest == second.seed_digest


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ({}, "tools"),
        ("f", "tools"),
        ([TOOL, 3], "tools[1]"),
        ([{"type": "function"}], "tools[0].function"),
        ([{"type": "function", "function": {}}], "tools[0].function.name"),
        ([{"type": "function", "function": {"name": ""}}], "tools[0].function.name"),
        ([{"type": "function", "function": {"name": "f", "parameters": []}}], "tools[0].function.parameters"),
        ([{"type": "function", "function": {"name": "f", "description": 1}}], "tools[0].function.description"),
    ],
)
def test_bad_tools(post, session, tools, param):
    assert error_of(post(tools=tools))["param"] == param
    assert session.refusals


def test_template_arguments_are_canonical(post, session):
    post(chat_template_kwargs={"b": [1, 2.0], "a": True})
    assert session.request.template_kwargs == '{"a":true,"b":[1,2]}'


@pytest.mark.parametrize("name", ["add_generation_prompt", "tokenize", "tools"])
def test_reserved_template_arguments_are_refused(post, name):
    assert error_of(post(chat_template_kwargs={name: True}))["param"] == f"chat_template_kwargs.{name}"


def test_template_arguments_must_be_an_object(post):
    assert error_of(post(chat_template_kwargs=["x"]))["param"] == "chat_template_kwargs"


def test_fields_that_mean_nothing_here_are_ignored_and_reported_once(post, session):
    post(temperature=0.2, top_p=None, n=4, tool_choice={"type": "function"}, made_up={"deep": [1]})
    assert session.request.normalised == {
        "ignored_field:temperature": 1,
        "ignored_field:n": 1,
        "ignored_field:tool_choice": 1,
        "ignored_field:made_up": 1,
    }
    post(temperature=0.2, user="me")
    assert session.request.normalised == {"ignored_field:user": 1}


def test_a_model_name_must_be_text(post):
    assert error_of(post(model=["gpt"]))["param"] == "model"


@pytest.mark.parametrize("messages", [None, [], {}, "hi", 3])
def test_messages_must_be_a_list_with_something_in_it(post, messages):
    assert error_of(post(messages=messages))["param"] == "messages"


def test_messages_are_required(post):
    assert error_of(post(b"{}"))["param"] == "messages"


def test_a_repeated_field_takes_the_last_value(post, session):
    post(b'{"seed": 1, "messages": [{"role":"user","role":"user","content":"a","content":"b"}], "seed": 2}')
    assert session.request.seed == 2
    assert session.request.messages[0].content == "b"


def test_equal_bodies_have_equal_digests_and_others_do_not(post, session):
    for fields in ({"seed": 1}, {"seed": 1}, {"seed": 2}, {"seed": 1, "user": "x"}, {}):
        post(**fields)
    digests = [request.retry.body for request in session.requests]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


@pytest.mark.parametrize("count", ["x", "-1", "", "9" * 30])
def test_a_strange_retry_count_is_no_retry(http, running, session, count):
    headers = {"x-api-key": str(session.credential), "x-stainless-retry-count": count}
    http.post(f"{running.url}/chat/completions", json={"messages": [{"role": "user", "content": "x"}]}, headers=headers)
    assert session.request.retry.retry_count == 0
