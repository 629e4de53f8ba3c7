"""The official clients, each as a whole agent with a tool loop of its own."""

import pytest
from conftest import ANTHROPIC, OPENAI, node_agent, python_agent

NO_THREADS = "thread is not supported: no conversation is kept; send the full messages"
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
