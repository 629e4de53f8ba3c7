"""The official clients, each as a whole agent with a tool loop of its own."""

import pytest

from conftest import ANTHROPIC, OPENAI, RULES, node_agent, python_agent

NO_THREADS = "thread is not supported: no conversation is kept; send the full messages"
HELD = [RULES[0], {**RULES[1], "delay_s": 2.5}]
IMPATIENT = "export TIMEOUT_S=1; "
STREAMED = pytest.mark.parametrize("words", [(), ("stream",)], ids=["whole", "streamed"])


@STREAMED
def test_openai_python_chat(session, words):
    session(OPENAI + python_agent("openai_chat", *words), "chat")


@STREAMED
def test_openai_python_responses(session, words):
    session(OPENAI + python_agent("openai_responses", *words), "responses")


@STREAMED
def test_anthropic_python_messages(session, words):
    session(ANTHROPIC + python_agent("anthropic_messages", *words), "messages")


def test_anthropic_python_tool_runner(session):
    session(ANTHROPIC + python_agent("anthropic_tool_runner"), "messages", refused=[NO_THREADS])


@STREAMED
@pytest.mark.usefixtures("npm_clients")
def test_openai_node_chat(session, words):
    session(OPENAI + node_agent("openai_chat", *words), "chat")


@STREAMED
@pytest.mark.usefixtures("npm_clients")
def test_openai_node_responses(session, words):
    session(OPENAI + node_agent("openai_responses", *words), "responses")


@STREAMED
@pytest.mark.usefixtures("npm_clients")
def test_anthropic_node_messages(session, words):
    session(ANTHROPIC + node_agent("anthropic_messages", *words), "messages")


@pytest.mark.usefixtures("npm_clients")
def test_anthropic_node_tool_runner(session):
    session(ANTHROPIC + node_agent("anthropic_tool_runner"), "messages", refused=[NO_THREADS])


def test_a_request_held_beyond_the_timeout_of_an_official_client_is_one_turn(session):
    line = session(OPENAI + IMPATIENT + python_agent("openai_chat"), "chat", rules=HELD)
    assert any(request["retry_of"] == line["requests"][0]["request_id"] for request in line["requests"])


def test_heartbeats_hold_a_streaming_official_client_beyond_its_timeout(session):
    command = ANTHROPIC + IMPATIENT + python_agent("anthropic_messages", "stream")
    line = session(command, "messages", rules=HELD, agentic_heartbeat_s=0.2)
    assert line["requests"][0]["timing"]["generation_s"] > 2
    assert line["requests"][0]["delivered"]
