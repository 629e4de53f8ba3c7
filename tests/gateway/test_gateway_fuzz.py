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
body = st.fixed_dictionaries(
    {"messages": st.lists(message, min_size=1, max_size=3) | values},
    optional={
        "model": text_or_junk,
        "tools": st.lists(tool | values, max_size=2) | values,
        "chat_template_kwargs": values,
        "max_tokens": values,
        "max_completion_tokens": values,
        "stop": values,
        "seed": values,
        "logprobs": values,
        "stream": values,
        "n": values,
    },
)


def check(running, http, raw):
    session = running.handler.new()
    headers = {"authorization": f"Bearer {session.credential}"}
    answer = http.post(f"{running.url}/v1/chat/completions", content=raw, headers=headers)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 200:
        assert len(session.requests) == 1
        assert session.deliveries.get(timeout=PATIENCE_S) == ("r0", True)
        assert not session.refusals
    else:
        assert not session.requests
        assert len(session.refusals) == 1
        assert answer.json()["error"]["message"]
    return answer.status_code


relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


@relaxed
@given(body | values)
def test_any_json_gets_an_answer_or_a_clear_refusal(running, http, value):
    check(running, http, json.dumps(value).encode())


@relaxed
@given(body, st.data())
def test_any_damage_to_a_body_gets_an_answer_or_a_clear_refusal(running, http, value, data):
    raw = bytearray(json.dumps(value).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    check(running, http, bytes(raw))


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
def test_any_bytes_at_the_socket_leave_the_gateway_standing(running, raw):
    where = urlsplit(running.url)
    with socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S) as connection:
        connection.sendall(raw + b"\r\n\r\n")
    assert httpx.get(f"{running.url}/health").status_code == 200
