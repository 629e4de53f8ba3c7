"""Agent frameworks in Python, each with one tool that they call themselves."""

import pytest

from conftest import ANTHROPIC, OPENAI, python_agent


@pytest.mark.parametrize(("kind", "api"), [("chat_completions", "chat"), ("responses", "responses")])
def test_openai_agents(session, kind, api):
    session(OPENAI + "export OPENAI_AGENTS_DISABLE_TRACING=1; " + python_agent("openai_agents", kind), api)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("openai", "stream"), ("anthropic",)], ids="-".join)
def test_litellm(session, words):
    environment = OPENAI + ANTHROPIC + "export LITELLM_LOCAL_MODEL_COST_MAP=True; "
    api = "messages" if words[0] == "anthropic" else "chat"
    session(environment + python_agent("litellm_chat", *words), api)


@pytest.mark.parametrize(("kind", "api"), [("openai-chat", "chat"), ("openai-responses", "responses")])
def test_pydantic_ai(session, kind, api):
    session(OPENAI + python_agent("pydantic_ai_agent", kind), api)
