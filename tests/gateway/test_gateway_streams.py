"""Buffered server-sent events: the sequences of the integration guide, signs of life, and errors."""

import asyncio
import json

import anthropic
import httpx
import openai
import pytest
from scripted_gateway import PATIENCE_S, RunningGateway, say

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Message, ToolCall
from relaxforge.core.turns import Usage
from relaxforge.gateway.config import GatewayConfig

USER = {"role": "user", "content": "hi"}
BODIES = {
    "/chat/completions": {"messages": [USER]},
    "/responses": {"input": [USER]},
    "/messages": {"messages": [USER], "max_tokens": 9},
}
PATHS = list(BODIES)
FULL = Message("assistant", "four", "2+2", (ToolCall("c1", "add", '{"a":1}'), ToolCall("c2", "add", "{}")))
ANSWERS = [FULL, Message("assistant", "four"), Message("assistant"), Message("assistant", "", "only thought")]


def frames(raw):
    """(event name, data) of every frame, comments as ``:``."""
    found = []
    for block in raw.split("\n\n")[:-1]:
        if block.startswith(":"):
            found.append((":", None))
            continue
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((lines.get("event"), lines["data"]))
    return found


def streamed(send, path, **fields):
    answer = send(path, **BODIES[path], stream=True, **fields)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    return frames(answer.text)


def names(found):
    return [name for name, _ in found]


@pytest.mark.parametrize("message", ANSWERS)
def test_chat_is_one_complete_chunk(send, session, message):
    session.script = lambda request: say(message=message, usage=Usage(11, 5, 8))
    opening, chunk, done = streamed(send, "/chat/completions", stream_options={"include_usage": False})
    assert (opening, done) == ((":", None), (None, "[DONE]"))
    shown = json.loads(chunk[1])
    whole = send("/chat/completions", **BODIES["/chat/completions"]).json()
    assert shown["object"] == "chat.completion.chunk"
    assert shown["usage"] == whole["usage"]
    [choice], [expected] = shown["choices"], whole["choices"]
    delta = choice["delta"]
    for index, call in enumerate(delta.get("tool_calls", ())):
        assert call.pop("index") == index
    assert delta == expected["message"]
    assert choice["finish_reason"] == expected["finish_reason"]


@pytest.mark.parametrize(("finish", "last"), [("stop", "response.completed"), ("length", "response.incomplete")])
@pytest.mark.parametrize("message", ANSWERS)
def test_responses_reduced_to_the_guide_is_the_guides_sequence(send, session, message, finish, last):
    session.script = lambda request: say(message=message, finish=finish)
    opening, *found = streamed(send, "/responses")
    assert opening == (":", None)
    payloads = [json.loads(data) for _, data in found]
    assert names(found) == [payload["type"] for payload in payloads]
    assert [payload["sequence_number"] for payload in payloads] == list(range(len(payloads)))
    whole = send("/responses", **BODIES["/responses"]).json()
    guide = [
        payload for payload in payloads if payload["type"] in ("response.created", "response.output_item.done", last)
    ]
    assert [payload["type"] for payload in guide] == [
        "response.created", *["response.output_item.done"] * len(whole["output"]), last,
    ]  # fmt: skip
    assert [payload["item"] for payload in guide[1:-1]] == whole["output"]
    final = guide[-1]["response"]
    assert {**final, "created_at": 0} == {**whole, "created_at": 0}
    assert guide[0]["response"]["id"] == final["id"]


@pytest.mark.parametrize("message", ANSWERS)
def test_messages_is_a_start_complete_blocks_and_an_end(send, session, message):
    session.script = lambda request: say(message=message, usage=Usage(11, 5))
    opening, *found = streamed(send, "/messages")
    assert opening == ("ping", '{"type":"ping"}')
    payloads = [json.loads(data) for _, data in found]
    assert names(found) == [payload["type"] for payload in payloads]
    whole = send("/messages", **BODIES["/messages"]).json()
    start, *blocks, delta, stop = payloads
    assert (start["type"], delta["type"], stop) == ("message_start", "message_delta", {"type": "message_stop"})
    assert (start["message"]["usage"]["input_tokens"], start["message"]["usage"]["output_tokens"]) == (11, 0)
    assert delta["delta"] == {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}
    assert delta["usage"] == whole["usage"]
    for index in range(len(whole["content"])):
        own = [payload["type"] for payload in blocks if payload["index"] == index]
        assert own[0] == "content_block_start"
        assert own[-1] == "content_block_stop"
        assert set(own[1:-1]) == {"content_block_delta"}
    assert [payload["index"] for payload in blocks] == sorted(payload["index"] for payload in blocks)


@pytest.fixture(scope="module")
def hasty():
    """A gateway whose heart beats fast."""
    gateway = RunningGateway(GatewayConfig(agentic_heartbeat_s=0.01))
    yield gateway
    gateway.stop()


@pytest.mark.parametrize("path", PATHS)
def test_the_stream_opens_at_once_and_lives_until_the_answer(hasty, path):
    session = hasty.handler.new()
    session.gate = asyncio.Event()
    headers = {"authorization": f"Bearer {session.credential}"}
    body = {**BODIES[path], "stream": True}
    alive = ("ping", '{"type":"ping"}') if path == "/messages" else (":", None)
    received = ""
    with httpx.stream("POST", hasty.url + path, json=body, headers=headers, timeout=PATIENCE_S) as answer:
        for piece in answer.iter_text():
            received += piece
            if frames(received).count(alive) >= 4:
                hasty.release(session)
    found = frames(received)
    assert found[:4] == [alive] * 4
    ends = {"/chat/completions": (None, "[DONE]"), "/messages": ("message_stop", '{"type":"message_stop"}')}
    assert found[-1] == ends.get(path, found[-1])
    assert names(found)[-1] in (None, "message_stop", "response.completed")
    assert session.deliveries.get(timeout=PATIENCE_S) == ("r0", True)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("fault", [RequestError("too long", code="context_length_exceeded"), RuntimeError("secret")])
def test_an_error_after_the_beginning_ends_the_stream(send, session, path, fault):
    def script(request):
        raise fault

    session.script = script
    found = streamed(send, path)[1:]
    code = "context_length_exceeded" if isinstance(fault, RequestError) else "internal_error"
    assert "secret" not in str(found)
    if path == "/chat/completions":
        [(name, data), done] = found
        assert (name, done) == (None, (None, "[DONE]"))
        assert json.loads(data)["error"]["code"] == code
    elif path == "/responses":
        assert names(found) == ["response.created", "response.failed"]
        failed = json.loads(found[-1][1])["response"]
        assert (failed["status"], failed["error"]["code"]) == ("failed", code)
    else:
        [(name, data)] = found
        assert name == "error"
        assert json.loads(data)["error"]["type"] == (
            "invalid_request_error" if isinstance(fault, RequestError) else "api_error"
        )


@pytest.mark.parametrize("path", PATHS)
def test_an_error_before_the_beginning_is_plain_http(send, session, path):
    assert send(path, stream=True).status_code == 400
    session.ended = True
    answer = send(path, **BODIES[path], stream=True)
    assert answer.status_code == 404
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["type"] == "not_found_error"
    assert "session_discarded" in (error.get("code"), error.get("details", {}).get("error_code"))


def test_the_body_decides_not_the_accept_header(http, running, session):
    headers = {"authorization": f"Bearer {session.credential}", "accept": "text/event-stream"}
    answer = http.post(f"{running.url}/chat/completions", json={"messages": [USER], "stream": False}, headers=headers)
    assert answer.json()["object"] == "chat.completion"


# The official clients' helpers


@pytest.fixture
def openai_client(running, session):
    with openai.OpenAI(base_url=running.url, api_key=str(session.credential), timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
def anthropic_client(running, session):
    with anthropic.Anthropic(base_url=running.url, api_key=str(session.credential), timeout=PATIENCE_S) as client:
        yield client


def without_nothing(value):
    """Without the keys that only the helpers add, all of them None here, and without the time of day."""
    if isinstance(value, dict):
        dropped = ("created_at", "created", "index", "object")
        return {key: without_nothing(inner) for key, inner in value.items() if inner is not None and key not in dropped}
    return [without_nothing(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("message", ANSWERS)
def test_openais_chat_helper_returns_the_same_object(openai_client, session, message):
    session.script = lambda request: say(message=message, usage=Usage(11, 5, 8))
    asked = {"model": "m", "messages": [USER]}
    plain = openai_client.chat.completions.create(**asked)
    with openai_client.chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion()
    assert without_nothing(final.model_dump()) == without_nothing(plain.model_dump())


@pytest.mark.parametrize("message", ANSWERS)
def test_openais_responses_helper_returns_the_same_object(openai_client, session, message):
    session.script = lambda request: say(message=message, usage=Usage(11, 5, 8))
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
    asked = {"model": "m", "input": [USER], "tools": tools}
    plain = openai_client.responses.create(**asked)
    with openai_client.responses.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert ("response.output_text.delta" in kinds) == any(item.type == "message" for item in plain.output)
    assert without_nothing(final.model_dump()) == without_nothing(plain.model_dump())
    assert final.output_text == plain.output_text == message.text


@pytest.mark.parametrize("message", ANSWERS)
def test_anthropics_helper_returns_the_same_object(anthropic_client, session, message):
    session.script = lambda request: say(message=message, usage=Usage(11, 5, 8))
    asked = {"model": "m", "max_tokens": 9, "messages": [USER]}
    plain = anthropic_client.messages.create(**asked)
    with anthropic_client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == message.text
    assert without_nothing(final.model_dump()) == without_nothing(plain.model_dump())


def test_plain_iteration_over_a_chat_stream_ends_by_itself(openai_client):
    chunks = list(openai_client.chat.completions.create(model="m", messages=[USER], stream=True))
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["fine"]
    assert chunks[0].usage.total_tokens == 10


def test_the_clients_raise_what_went_wrong_within_a_stream(openai_client, anthropic_client, session):
    def script(request):
        raise RequestError("too long", code="context_length_exceeded")

    session.script = script
    with pytest.raises(openai.APIError, match="too long"):
        list(openai_client.chat.completions.create(model="m", messages=[USER], stream=True))
    failed = list(openai_client.responses.create(model="m", input="x", stream=True))[-1]
    assert failed.response.error.message == "too long"
    with pytest.raises(anthropic.APIError, match="too long"):
        list(anthropic_client.messages.create(model="m", max_tokens=1, messages=[USER], stream=True))


def test_anthropics_tool_runner_finishes_a_tool_task(anthropic_client, session):
    call = Message("assistant", "I add.", "hm", (ToolCall("c1", "add", '{"left":1,"right":2}'),))
    turns = [say(message=call, finish="tool_calls"), say("3")]
    session.script = lambda request: turns.pop(0)

    @anthropic.beta_tool
    def add(left: int, right: int) -> str:
        """Add two numbers."""
        return str(left + right)

    runner = anthropic_client.beta.messages.tool_runner(max_tokens=9, model="m", tools=[add], messages=[USER])
    assert runner.until_done().content[0].text == "3"
    [refusal] = session.refusals
    assert refusal.param == "thread", "the runner would rather have us keep the conversation, and is told to send it"
    first, second = session.requests
    assert [tool.name for tool in first.tools] == ["add"]
    assert second.messages == (Message("user", "hi"), call, Message("tool", "3", tool_call_id="c1"))
