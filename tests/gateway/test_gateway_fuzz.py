"""Nothing an agent can send makes the gateway fail, and what it refuses never reaches the Session."""

import json
import socket
from urllib.parse import urlsplit

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_gateway import PATIENCE_S

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
text_or_junk = st.text(max_size=10) | values
call = st.fixed_dictionaries(
    {},
    optional={
        "id": text_or_junk,
        "type": st.sampled_from(["function", "custom"]) | values,
        "function": values | st.fixed_dictionaries({}, optional={"name": text_or_junk, "arguments": text_or_junk}),
    },
)
part = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url"]) | values},
    optional={"text": text_or_junk, "image_url": values | st.fixed_dictionaries({"url": text_or_junk})},
)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "developer"]) | values},
    optional={
        "content": text_or_junk | st.lists(part | values, max_size=3),
        "reasoning_content": text_or_junk,
        "tool_calls": st.lists(call | values, max_size=2) | values,
        "tool_call_id": text_or_junk,
        "name": values,
    },
)
tool = st.fixed_dictionaries(
    {"type": st.just("function") | values},
    optional={"function": values | st.fixed_dictionaries({"name": text_or_junk}, optional={"parameters": values})},
)
chat = st.fixed_dictionaries(
    {"messages": st.lists(message, min_size=1, max_size=3) | values},
    optional={
        "model": text_or_junk,
        "tools": st.lists(tool | values, max_size=2) | values,
        "tool_choice": values,
        "chat_template_kwargs": values,
        "reasoning_effort": values,
        "max_tokens": values,
        "max_completion_tokens": values,
        "stop": values,
        "seed": values,
        "logprobs": values,
        "stream": values,
        "n": values,
    },
)
item_part = st.fixed_dictionaries(
    {"type": st.sampled_from(["input_text", "output_text", "refusal", "input_image", "input_file"]) | values},
    optional={"text": text_or_junk, "refusal": text_or_junk, "image_url": text_or_junk},
)
item = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "additional_tools",
             "custom_tool_call_output", "item_reference", "web_search_call"]
        ) | values,
    },
    optional={
        "role": st.sampled_from(["system", "user", "assistant", "developer"]) | values,
        "content": text_or_junk | st.lists(item_part | values, max_size=3),
        "summary": st.lists(item_part | values, max_size=2) | values,
        "call_id": text_or_junk,
        "name": text_or_junk,
        "namespace": text_or_junk,
        "arguments": text_or_junk,
        "input": text_or_junk,
        "output": text_or_junk | st.lists(item_part | values, max_size=2),
        "tools": values,
    },
)  # fmt: skip
item_tool = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["function", "custom"]) | values},
        optional={"name": text_or_junk, "description": text_or_junk, "parameters": values, "format": values},
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("namespace"), "name": text_or_junk, "tools": st.lists(inner | values, max_size=2) | values}
    ),
    max_leaves=3,
)
responses = st.fixed_dictionaries(
    {"input": st.lists(item, min_size=1, max_size=4) | text_or_junk},
    optional={
        "instructions": text_or_junk,
        "tools": st.lists(item_tool | values, max_size=2) | values,
        "tool_choice": values,
        "reasoning": values | st.fixed_dictionaries({"effort": text_or_junk}),
        "max_output_tokens": values,
        "previous_response_id": st.none() | text_or_junk,
        "stream": values,
    },
)
block = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "image", "thinking", "redacted_thinking", "tool_use", "document"]) | values},
        optional={
            "text": text_or_junk,
            "thinking": text_or_junk,
            "source": values | st.fixed_dictionaries({"type": st.just("url"), "url": text_or_junk}),
            "id": text_or_junk,
            "name": text_or_junk,
            "input": values,
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("tool_result"), "tool_use_id": text_or_junk},
        optional={"content": st.lists(inner | values, max_size=2) | text_or_junk, "is_error": values},
    ),
    max_leaves=3,
)
block_message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]) | values},
    optional={"content": text_or_junk | st.lists(block | values, max_size=3)},
)
messages = st.fixed_dictionaries(
    {"messages": st.lists(block_message, min_size=1, max_size=3) | values, "max_tokens": st.just(5) | values},
    optional={
        "system": text_or_junk | st.lists(block | values, max_size=2),
        "tools": st.lists(st.fixed_dictionaries({"name": text_or_junk}, optional={"type": values}), max_size=2)
        | values,
        "thinking": values | st.fixed_dictionaries({"type": st.sampled_from(["disabled", "adaptive"]) | values}),
        "output_config": values,
        "stop_sequences": values,
        "tool_choice": values,
        "stream": values,
    },
)
PATHS = {"/v1/chat/completions": chat, "/v1/responses": responses, "/v1/messages": messages}
bodies = st.one_of([st.tuples(st.just(path), body | values) for path, body in PATHS.items()])


def check(running, http, path, raw):
    session = running.handler.new()
    headers = {"authorization": f"Bearer {session.credential}"}
    answer = http.post(running.url + path, content=raw, headers=headers)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 200:
        assert len(session.requests) == 1
        assert session.deliveries.get(timeout=PATIENCE_S) == ("r0", True)
        assert not session.refusals
    else:
        assert not session.requests
        assert len(session.refusals) == 1
        assert (session.known, session.known_tools, session.known_fields) == ({}, {}, set())
        assert answer.json()["error"]["message"]
    return answer.status_code


relaxed = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=200
)


@relaxed
@given(bodies)
def test_any_json_gets_an_answer_or_a_clear_refusal(running, http, sent):
    path, value = sent
    check(running, http, path, json.dumps(value).encode())


@relaxed
@given(bodies, st.data())
def test_any_damage_to_a_body_gets_an_answer_or_a_clear_refusal(running, http, sent, data):
    path, value = sent
    raw = bytearray(json.dumps(value).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    check(running, http, path, bytes(raw))


@relaxed
@given(messages | values)
def test_counting_any_json_gets_a_number_or_a_clear_refusal(running, http, value):
    session = running.handler.new()
    headers = {"x-api-key": str(session.credential)}
    answer = http.post(f"{running.url}/v1/messages/count_tokens", content=json.dumps(value).encode(), headers=headers)
    assert answer.status_code in (200, 400), answer.text
    assert (session.requests, session.refusals, session.known) == ([], [], {})


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
def test_any_bytes_at_the_socket_leave_the_gateway_standing(running, raw):
    where = urlsplit(running.url)
    with socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S) as connection:
        connection.sendall(raw + b"\r\n\r\n")
    assert httpx.get(f"{running.url}/health").status_code == 200
