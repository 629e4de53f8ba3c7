"""What known harnesses and clients do beyond the reference, in every API."""

import asyncio
import json
import socket
from urllib.parse import urlsplit

import anthropic
import openai
import pytest
from scripted_gateway import PATIENCE_S, RunningGateway, ScriptedSession, say

from relaxforge.core.errors import ConfigError, RequestError
from relaxforge.core.messages import Message
from relaxforge.gateway.chat import Chat
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.messages import Messages
from relaxforge.gateway.responses import Responses

USER = {"role": "user", "content": "hi"}
BODIES = {
    "/chat/completions": {"messages": [USER]},
    "/responses": {"input": [USER]},
    "/messages": {"messages": [USER], "max_tokens": 9},
}
PATHS = list(BODIES)
DIALECTS = {"/chat/completions": Chat, "/responses": Responses, "/messages": Messages}
BILLING = "x-anthropic-billing-header: cc_version=2.1.{0}; cc_entrypoint=cli; cch={0}af31;"
LEFT = "<total_tokens>{0} tokens left</total_tokens>"


def read(path, door=None, noise=("billing_header", "total_tokens"), **fields):
    body = {**BODIES[path], **fields}
    return DIALECTS[path]("tiny", noise).read(json.dumps(body).encode(), {}, door or ScriptedSession("s"))


def with_system(path, *texts):
    """A request with a system prompt, in the places where each API takes one."""
    if path == "/messages":
        return {"system": [{"type": "text", "text": text} for text in texts]}
    content = [{"type": "text" if path == "/chat/completions" else "input_text", "text": text} for text in texts]
    name = "messages" if path == "/chat/completions" else "input"
    return {name: [{"role": "system", "content": content}, USER]}


# Noise


@pytest.mark.parametrize("path", PATHS)
def test_a_billing_header_is_not_part_of_the_conversation(path):
    first, second = (read(path, **with_system(path, BILLING.format(n), "You are", " kind")) for n in (1, 2))
    assert first.messages == second.messages == (Message("system", "You are kind"), Message("user", "hi"))
    assert first.normalised["billing_header"] == 1


@pytest.mark.parametrize("path", PATHS)
def test_a_count_of_tokens_left_is_not_part_of_the_conversation(path):
    grown = "rules\n" + LEFT.format(9000) + "\n" + LEFT.format(8000)
    first, second = (read(path, **with_system(path, text)) for text in ("rules", grown))
    assert first.messages == second.messages
    assert second.normalised["total_tokens"] == 2


@pytest.mark.parametrize("path", PATHS)
def test_a_system_message_that_is_only_noise_means_nothing(path):
    name = "input" if path == "/responses" else "messages"
    marker = {"role": "system", "content": LEFT.format(9000)}
    assert read(path, **{name: [USER, marker, USER]}).messages == (Message("user", "hi"), Message("user", "hi"))


def test_a_chat_that_is_only_noise_is_refused():
    with pytest.raises(RequestError, match="--agentic-normalise"):
        read("/chat/completions", messages=[{"role": "system", "content": LEFT.format(1)}])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("noise", [(), ("billing_header",)])
def test_each_kind_of_noise_can_be_kept(path, noise):
    text = "rules\n" + LEFT.format(9000)
    assert read(path, noise=noise, **with_system(path, text)).messages[0] == Message("system", text)


def test_what_users_and_tools_say_is_never_noise():
    for text in (BILLING.format(1), LEFT.format(1)):
        assert read("/chat/completions", messages=[{"role": "user", "content": text}]).messages[0].content == text


def test_an_unknown_kind_of_noise_is_an_error_of_the_configuration():
    with pytest.raises(ConfigError, match="--agentic-normalise knows billing_header, total_tokens, got dust"):
        GatewayConfig(agentic_normalise=("dust",))


@pytest.mark.parametrize(
    ("setting", "value"),
    [("agentic_heartbeat_s", 0.0), ("agentic_heartbeat_s", float("nan")), ("agentic_disconnect_grace_s", -1.0)],
)
def test_times_are_checked(setting, value):
    with pytest.raises(ConfigError, match="--" + setting.replace("_", "-")):
        GatewayConfig(**{setting: value})


# Wishes


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("choice", "may_call", "noted"),
    [
        (None, True, False),
        ("auto", True, False),
        ({"type": "auto", "disable_parallel_tool_use": True}, True, False),
        ("none", False, False),
        ({"type": "none"}, False, False),
        ("required", True, True),
        ({"type": "any"}, True, True),
        ({"type": "function", "name": "add"}, True, True),
        (3, True, True),
    ],
)
def test_tool_choice_auto_and_none_are_honoured_and_others_noted_once(path, choice, may_call, noted):
    door = ScriptedSession("s")
    request = read(path, door, tool_choice=choice)
    assert request.may_call is may_call
    assert request.normalised == ({"ignored_field:tool_choice": 1} if noted else {})
    assert read(path, door, tool_choice=choice).normalised == {}


def test_tool_choice_none_changes_nothing_in_what_the_model_is_shown():
    tools = [{"type": "function", "function": {"name": "add"}}]
    free = read("/chat/completions", tools=tools)
    bound = read("/chat/completions", tools=tools, tool_choice="none")
    assert free.seed_digest == bound.seed_digest


def test_effort_in_chat_is_a_template_argument():
    assert read("/chat/completions", reasoning_effort="low").template_kwargs == '{"reasoning_effort":"low"}'


@pytest.mark.parametrize("path", PATHS)
def test_fields_that_mean_nothing_here_are_noted_once(path):
    door = ScriptedSession("s")
    assert read(path, door, temperature=0.5, made_up=[1]).normalised == {
        "ignored_field:temperature": 1,
        "ignored_field:made_up": 1,
    }
    assert read(path, door, temperature=0.5).normalised == {}


@pytest.mark.parametrize("path", PATHS)
def test_a_refused_request_does_not_use_up_what_is_noted_once(path):
    door = ScriptedSession("s")
    with pytest.raises(RequestError):
        read(path, door, temperature=0.5, model=3)
    assert read(path, door, temperature=0.5).normalised == {"ignored_field:temperature": 1}


def test_equal_bytes_may_mean_different_things_in_different_apis():
    door = ScriptedSession("s")
    message = {"role": "assistant", "content": [{"type": "text", "text": "x"}], "reasoning": "t"}
    chat = read("/chat/completions", door, messages=[USER, message]).messages[1]
    other = read("/messages", door, messages=[USER, message]).messages[1]
    assert (chat.reasoning, other.reasoning) == ("t", "")


# Addresses


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("form", ["{}", "/v1{}", "/v1{}/", "/v1{}?beta=true", "{}/?beta=true"])
@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_every_api_is_found_under_every_spelling(http, running, session, path, form, header):
    key = str(session.credential)
    headers = {header: f"Bearer {key}" if header == "authorization" else key}
    answer = http.post(running.url + form.format(path), json=BODIES[path], headers=headers)
    assert answer.status_code == 200
    assert session.request.api == {"/chat/completions": "chat"}.get(path, path.strip("/"))


@pytest.mark.parametrize("path", [*PATHS, "/messages/count_tokens"])
def test_no_credential_is_401_in_the_shape_of_the_api(http, running, path):
    answer = http.post(running.url + path, json={})
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"
    assert (answer.json().get("type") == "error") == path.startswith("/messages")


def test_models_are_listed_for_every_client(running, session):
    key = str(session.credential)
    with openai.OpenAI(base_url=running.url, api_key=key) as client:
        assert [model.id for model in client.models.list()] == ["tiny", "other"]
    with anthropic.Anthropic(base_url=running.url, api_key=key) as client:
        listed = client.models.list()
        assert [(model.id, model.type, model.display_name) for model in listed] == [
            ("tiny", "model", "tiny"), ("other", "model", "other"),
        ]  # fmt: skip
        codex = listed.model_extra["models"]
    assert [model["slug"] for model in codex] == ["tiny", "other"]


def test_anthropics_client_counts_tokens(running, session):
    with anthropic.Anthropic(base_url=running.url, api_key=str(session.credential)) as client:
        counted = client.messages.count_tokens(model="m", system="rules", messages=[USER])
    assert counted.input_tokens == 17
    assert session.counted[0].messages == (Message("system", "rules"), Message("user", "hi"))
    assert (session.requests, session.refusals) == ([], [])


# Sizes


@pytest.mark.parametrize("path", PATHS)
def test_long_histories_many_tools_and_large_bodies(send, session, path):
    name = "input" if path == "/responses" else "messages"
    history = [USER, {"role": "assistant", "content": "x"}] * 2499 + [{"role": "user", "content": "z" * 50_000_000}]
    function = {"name": "f", "parameters": {"type": "object"}}
    tool = {
        "/chat/completions": {"type": "function", "function": function},
        "/responses": {"type": "function", **function},
        "/messages": {"name": "f", "input_schema": {"type": "object"}},
    }[path]
    fields = {**BODIES[path], name: history, "tools": [tool] * 300}
    assert send(path, **fields).status_code == 200
    assert (len(session.request.messages), len(session.request.tools)) == (4999, 300)


@pytest.mark.parametrize("path", PATHS)
def test_more_than_the_limit_is_413_in_the_shape_of_the_api(running, session, path):
    where = urlsplit(running.url)
    head = (
        f"POST {where.path}{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.credential}\r\n"
        f"content-length: {65 * 2**20}\r\nexpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head.encode())
        answer = connection.recv(65536).decode()
    assert answer.startswith("HTTP/1.1 413 ")
    assert '"request_too_large"' in answer
    assert "--agentic-max-body-mb" in answer


@pytest.mark.parametrize("path", PATHS)
def test_nonsense_deep_nesting_and_nan_are_400(send, session, path):
    deep = b"[" * 10_000 + b"]" * 10_000
    good = json.dumps(BODIES[path]).encode()[1:]
    for body in (b"{", b"[]", b'{"tools":' + deep + b"," + good, b'{"chat_template_kwargs":{"a":NaN},' + good):
        assert send(path, body).status_code == 400
    assert len(session.refusals) == 4
    assert not session.requests


@pytest.mark.parametrize("path", PATHS)
def test_lone_surrogates_and_duplicate_keys_are_accepted(send, session, path):
    good = json.dumps(BODIES[path]).encode()[1:]
    answer = send(path, b'{"model":"a","model":"b",' + good.replace(b'"hi"', rb'"a\ud800"'))
    assert answer.json()["model"] == "b"
    assert session.request.messages[0].content == "a\ufffd"
    assert session.request.normalised == {"lone_surrogate": 1}


# Clients that go away


@pytest.fixture(scope="module")
def curt():
    """A gateway that waits for nobody."""
    gateway = RunningGateway(GatewayConfig(agentic_disconnect_grace_s=0.0, agentic_heartbeat_s=0.01))
    yield gateway
    gateway.stop()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_and_stays_away_ends_its_generation(curt, path, stream):
    session = curt.handler.new()
    session.gate = asyncio.Event()
    body = json.dumps({**BODIES[path], "stream": stream}).encode()
    where = urlsplit(curt.url)
    head = (
        f"POST {where.path}{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.credential}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head.encode() + body)
        assert session.serving.wait(PATIENCE_S)
    assert session.lost_ones.get(timeout=PATIENCE_S) is session.request
    assert session.deliveries.get(timeout=PATIENCE_S) == ("r0", False)


def test_a_client_that_was_answered_is_not_lost(curt):
    session = curt.handler.new()
    with openai.OpenAI(base_url=curt.url, api_key=str(session.credential)) as client:
        for _ in range(3):
            client.chat.completions.create(model="m", messages=[USER])
    assert session.lost_ones.empty()


@pytest.mark.parametrize("path", PATHS)
def test_a_finished_session_is_404_and_not_to_be_retried(running, session, path):
    session.ended = True
    key = str(session.credential)
    session.script = lambda request: say()
    if path == "/messages":
        with anthropic.Anthropic(base_url=running.url, api_key=key) as client:
            with pytest.raises(anthropic.NotFoundError) as caught:
                client.messages.create(model="m", max_tokens=1, messages=[USER])
            assert caught.value.error_code == "session_discarded"
    else:
        with openai.OpenAI(base_url=running.url, api_key=key) as client:
            ask = client.responses.create if path == "/responses" else client.chat.completions.create
            with pytest.raises(openai.NotFoundError) as caught:
                ask(model="m", **BODIES[path])
            assert caught.value.code == "session_discarded"
    assert caught.value.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("path", "name"), [("/messages", "system"), ("/responses", "instructions"), ("/responses", "input")]
)
def test_text_beside_the_list_is_remembered_too(path, name):
    door = ScriptedSession("s")
    first, second = (read(path, door, **{name: "rules \ud800"}) for _ in range(2))
    assert all(one is other for one, other in zip(first.messages, second.messages, strict=True))
    assert (first.normalised, second.normalised) == ({"lone_surrogate": 1}, {})


def test_one_text_in_two_fields_is_two_messages():
    request = read("/responses", instructions="hi", input="hi")
    assert request.messages == (Message("system", "hi"), Message("user", "hi"))
