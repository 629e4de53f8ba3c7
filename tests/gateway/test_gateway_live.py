"""``--agentic-stream tokens``: text comes while it is sampled, and the final object is the same."""

import asyncio
import json
import threading

import anthropic
import openai
import pytest
from scripted_gateway import PATIENCE_S, RunningGateway, say

from relaxforge.core.messages import Message, ToolCall
from relaxforge.core.turns import TextPiece, Usage
from relaxforge.gateway.config import GatewayConfig

USER = {"role": "user", "content": "hi"}
CALL = ToolCall("c1", "add", '{"a":1}')
ANSWERS = [
    Message("assistant", "one two three"),
    Message("assistant", "one two", "2+2"),
    Message("assistant", "one two!", "2+2", (CALL,)),
    Message("assistant", "", "2+2", (CALL,)),
]


@pytest.fixture(scope="module")
def living():
    gateway = RunningGateway(GatewayConfig(agentic_stream="tokens"))
    yield gateway
    gateway.stop()


@pytest.fixture
def session(living):
    return living.handler.new()


@pytest.fixture
def speak(living, session):
    """Let the Session say pieces, and after the client has seen them (``release``) answer with the whole message."""

    def begin(message):
        session.gate = asyncio.Event()
        session.script = lambda request: say(message=message, finish="stop", usage=Usage(11, 5))
        texts = ["one", " two"] if message.text else []

        def talk():
            assert session.serving.wait(PATIENCE_S)
            for text in texts:
                living.loop.call_soon_threadsafe(session.said, TextPiece("r0", text, message.reasoning, 11))
            if not texts:
                living.release(session)

        talking = threading.Thread(target=talk)
        talking.start()
        return talking

    return begin


@pytest.mark.parametrize("message", ANSWERS)
def test_chat(living, session, speak, message):
    talking = speak(message)
    heard = ""
    with (
        openai.OpenAI(base_url=living.url, api_key=str(session.credential), timeout=PATIENCE_S) as client,
        client.chat.completions.stream(model="m", messages=[USER]) as stream,
    ):
        for event in stream:
            if event.type == "content.delta":
                heard += event.delta
            if heard == "one two":
                living.release(session)
        final = stream.get_final_completion()
    talking.join(PATIENCE_S)
    said = final.choices[0].message
    assert (said.content or "", heard) == (message.text, message.text)
    assert getattr(said, "reasoning_content", "") == message.reasoning
    assert [call.function.arguments for call in said.tool_calls or []] == [
        call.arguments for call in message.tool_calls
    ]
    assert final.usage.total_tokens == 16
    assert session.deliveries.get(timeout=PATIENCE_S) == ("r0", True)


@pytest.mark.parametrize("message", ANSWERS)
def test_responses(living, session, speak, message):
    talking = speak(message)
    heard, numbers = "", []
    with openai.OpenAI(base_url=living.url, api_key=str(session.credential), timeout=PATIENCE_S) as client:
        with client.responses.stream(model="m", input=[USER]) as stream:
            for event in stream:
                numbers.append(event.sequence_number)
                if event.type == "response.output_text.delta":
                    heard += event.delta
                if heard == "one two":
                    living.release(session)
            final = stream.get_final_response()
        talking.join(PATIENCE_S)
        session.gate = None
        plain = client.responses.create(model="m", input=[USER])
    assert heard == final.output_text == message.text
    assert numbers == list(range(len(numbers)))
    whole, expected = (json.loads(response.model_dump_json(exclude_none=True)) for response in (final, plain))
    assert {**whole, "created_at": 0} == {**expected, "created_at": 0}


@pytest.mark.parametrize("message", ANSWERS)
def test_messages(living, session, speak, message):
    talking = speak(message)
    heard = ""
    with anthropic.Anthropic(base_url=living.url, api_key=str(session.credential), timeout=PATIENCE_S) as client:
        with client.messages.stream(model="m", max_tokens=9, messages=[USER]) as stream:
            for event in stream:
                if event.type == "text":
                    heard += event.text
                if event.type == "message_start":
                    assert event.message.usage.input_tokens == 11
                if heard == "one two":
                    living.release(session)
            final = stream.get_final_message()
        talking.join(PATIENCE_S)
        session.gate = None
        plain = client.messages.create(model="m", max_tokens=9, messages=[USER])
    assert heard == message.text
    assert final.model_dump(exclude_none=True) == plain.model_dump(exclude_none=True)


def test_a_buffered_gateway_listens_to_nothing(running, http):
    session = running.handler.new()
    headers = {"authorization": f"Bearer {session.credential}"}
    http.post(f"{running.url}/chat/completions", json={"messages": [USER], "stream": True}, headers=headers)
    assert session.said is None
