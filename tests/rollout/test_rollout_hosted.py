"""A Session whose model is hosted: the same conversations and matching, without tokens. Our own gateway is the host."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import anthropic
import openai
import pytest
from rollout_parts import PATIENCE_S, HeardEngine, ask, chat, new_session, refusal, run, says, until, user

from relaxforge.agents.config import AgentConfig
from relaxforge.core.errors import ConfigError
from relaxforge.core.ids import Credential
from relaxforge.core.sessions import Task
from relaxforge.core.turns import Sampling
from relaxforge.engine.hosted import HostedEngine
from relaxforge.engine.scripted.rules import Rule
from relaxforge.forest.config import HistoryConfig
from relaxforge.forest.integrity import check_integrity
from relaxforge.forest.lineage import account
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.server import Gateway
from relaxforge.rollout.config import RolloutConfig
from relaxforge.rollout.factory import SessionFactory
from relaxforge.rollout.hosted import HostedSession
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.record import dump_line
from relaxforge.rollout.registry import SessionRegistry
from relaxforge.rollout.session import SessionIdentity, SessionLimits

CALL = '<think>hm</think>I look.\n<tool_call>\n{"name": "search", "arguments": {"q": "x"}}\n</tool_call>'


@asynccontextmanager
async def gateway_of(session):
    registry = SessionRegistry()
    registry.add(session)
    gateway = Gateway(registry, GatewayConfig(), ("tiny",), dict)
    await gateway.start()
    try:
        yield gateway.base_url, str(session.identity.credential)
    finally:
        await gateway.close()


@asynccontextmanager
async def hosted(renderer, *rules):
    """A hosted Session, and the Session of our own gateway that answers it."""
    host = new_session(renderer, HeardEngine(renderer, *rules), session_id="train-g000009-00")
    async with gateway_of(host) as (url, key):
        engine = HostedEngine(f"{url}/v1", "tiny", key, first_pause_s=0.01)
        identity = SessionIdentity(Credential.issue("eval-g000000-00"), "eval-g000000", "eval", Task(0, None, {}), 7)
        limits = SessionLimits(context=None, response=64, active_s=600.0, startup_s=60.0)
        session = HostedSession(identity, limits, Sampling(max_tokens=64), model=engine)
        session.open_gate()
        try:
            yield session, host
        finally:
            await engine.close()


def test_a_conversation_is_one_line_of_states_without_tokens(renderer):
    async def main():
        async with hosted(renderer, says("one", "two")) as (session, host):
            first = await ask(session, user("a"))
            second = await ask(session, user("a"), first.message, user("b"))
            assert (first.message.content, second.message.content) == ("one", "two")
            assert [state.depth for state in session.forest.responses] == [2, 4]
            assert all(not state.tokens for state in session.forest.states)
            assert session.forest.sampled_tokens == 0
            assert second.usage.prompt_tokens > first.usage.prompt_tokens > 0
            check_integrity(session.forest)
            assert [state.depth for state in host.forest.responses] == [2, 4]
            assert account(session.forest, (), "session_failed").balanced
            line = dump_line(Outcome(session), run_id="r", incarnation=0, rollout_id=0)
            usage = [request["usage"] for request in line["requests"]]
            assert [one["completion_tokens"] for one in usage] == [len(state.tokens) for state in host.forest.responses]
            assert line["forest"][1]["message"]["content"] == "one"

    run(main())


def test_all_three_dialects_speak_to_the_hosted_model(renderer):
    async def main():
        async with (
            hosted(renderer, says(CALL, "two", "three")) as (session, _),
            gateway_of(session) as (url, key),
            openai.AsyncOpenAI(base_url=url, api_key=key, timeout=PATIENCE_S) as client,
            anthropic.AsyncAnthropic(base_url=url, api_key=key, timeout=PATIENCE_S) as other,
        ):
            tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
            ask_user = {"role": "user", "content": "q"}
            answer = await client.chat.completions.create(model="m", messages=[ask_user], tools=[tool])
            call = answer.choices[0].message.tool_calls[0]
            assert (call.function.name, call.function.arguments) == ("search", '{"q":"x"}')
            response = await client.responses.create(model="m", input="again")
            assert response.output_text == "two"
            async with other.messages.stream(model="m", max_tokens=20, messages=[ask_user]) as stream:
                assert await stream.get_final_text() == "three"
            assert sum(1 for _ in session.forest.responses) == 3

    run(main())


def test_a_host_that_fails_makes_a_provider_error(renderer):
    async def main():
        async with hosted(renderer, Rule("the test", error="out of memory")) as (session, _):
            error = await refusal(session, user("a"))
            assert (error.status, error.code) == (500, "internal_error")
            assert str(session.fault.category) == "provider_error"
            assert "answered 500 (5 tries)" in session.fault.message

    run(main())


def test_the_end_of_a_session_ends_its_request_and_blames_nobody(renderer):
    async def main():
        async with hosted(renderer, says("late", delay_s=600.0)) as (session, host):
            asking = asyncio.create_task(session.turn(chat(user("a"))))
            await until(lambda: host.records)
            await session.seal()
            with pytest.raises(Exception, match="has ended"):
                await asking
            assert session.fault is None
            await host.seal()

    run(main())


def test_logprobs_and_token_counts_are_refused(renderer):
    async def main():
        async with hosted(renderer, says("one")) as (session, _):
            assert "gives no logprobs" in str(await refusal(session, user("a"), logprobs=True))
            with pytest.raises(Exception, match="cannot be counted"):
                await session.count(chat(user("a")))

    run(main())


def test_a_hosted_model_is_refused_for_training():
    engine = HostedEngine("http://127.0.0.1:9", "big")
    factory = SessionFactory(
        RolloutConfig(),
        AgentConfig(agent_command="true"),
        HistoryConfig(),
        engine,
        None,
        SessionRegistry(),
        hosted=engine,
    )
    assert isinstance(factory.group(0, "eval", Task(0, None, {}), 1).sessions[0], HostedSession)
    with pytest.raises(ConfigError, match="returns text and no tokens, so there is nothing to train on"):
        factory.group(0, "train", Task(0, None, {}), 1)
    asyncio.run(engine.close())
