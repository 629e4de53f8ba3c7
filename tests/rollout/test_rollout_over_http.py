"""Real clients, a real gateway, real Sessions: what only shows when all of it stands together."""

import asyncio
from contextlib import asynccontextmanager

import anthropic
import openai
from rollout_parts import PATIENCE_S, HeardEngine, new_session, run, says

from relaxforge.core.messages import Message, ToolCall
from relaxforge.forest.select import implicit_context
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.server import Gateway
from relaxforge.rollout.registry import SessionRegistry

USER = {"role": "user", "content": "q"}
CALL = '<think>hm</think>I look.\n<tool_call>\n{"name": "search", "arguments": {"q": "x"}}\n</tool_call>'


@asynccontextmanager
async def serving(session, **settings):
    """The base URL of a gateway that opens ``session``, and its key."""
    registry = SessionRegistry()
    registry.add(session)
    gateway = Gateway(registry, GatewayConfig(**settings), ("tiny",), dict)
    await gateway.start()
    try:
        yield gateway.base_url, str(session.identity.credential)
    finally:
        await gateway.close()


def test_one_conversation_in_three_apis_is_one_line(renderer):
    async def main():
        session = new_session(renderer, HeardEngine(renderer, says(CALL, "two", "three")))
        async with (
            serving(session) as (url, key),
            openai.AsyncOpenAI(base_url=url, api_key=key, timeout=PATIENCE_S) as client,
            anthropic.AsyncAnthropic(base_url=url, api_key=key, timeout=PATIENCE_S) as other,
        ):
            schema = {"type": "object"}
            function = {"name": "search", "description": "d", "parameters": schema}
            first = await client.chat.completions.create(
                model="m", messages=[USER], tools=[{"type": "function", "function": function}]
            )
            call = first.choices[0].message.tool_calls[0]
            items = [
                USER,
                {"type": "reasoning", "id": "x", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"role": "assistant", "content": first.choices[0].message.content},
                {"type": "function_call", "call_id": call.id, "name": "search", "arguments": '{ "q": "x" }'},
                {"type": "function_call_output", "call_id": call.id, "output": "found"},
            ]
            second = await client.responses.create(model="m", input=items, tools=[{"type": "function", **function}])
            blocks = [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": call.id, "name": "search", "input": {"q": "x"}},
            ]
            result = {"type": "tool_result", "tool_use_id": call.id, "content": "found"}
            asked = {
                "model": "m",
                "messages": [
                    USER,
                    {"role": "assistant", "content": blocks},
                    {"role": "user", "content": [result]},
                    {"role": "assistant", "content": second.output_text},
                    USER,
                ],
                "tools": [{"name": "search", "description": "d", "input_schema": schema}],
            }
            counted = await other.messages.count_tokens(**asked)
            third = await other.messages.create(max_tokens=9, **asked)
        assert third.content[0].text == "three"
        assert counted.input_tokens == third.usage.input_tokens
        context = implicit_context(session.forest, "linear")
        answers = [state.messages[0] for state in context.state.lineage() if state.is_response]
        spoken = Message("assistant", "I look.", "hm", (ToolCall(call.id, "search", '{"q":"x"}'),))
        assert answers == [spoken, Message("assistant", "two"), Message("assistant", "three")]
        assert [record.api for record in session.records] == ["chat", "responses", "messages"]
        assert all(not record.drift and not record.normalised for record in session.records)

    run(main())


def test_a_client_that_times_out_and_tries_again_gets_the_generation_it_left(renderer):
    async def main():
        engine = HeardEngine(renderer, says("slow but sure", delay_s=0.7))
        session = new_session(renderer, engine)
        async with (
            serving(session) as (url, key),
            openai.AsyncOpenAI(base_url=url, api_key=key, timeout=0.3, max_retries=5) as client,
        ):
            answer = await client.chat.completions.create(model="m", messages=[USER])
        assert answer.choices[0].message.content == "slow but sure"
        assert len(engine.asked) == 1
        assert len(session.records) > 1
        assert implicit_context(session.forest, "linear").state is session.records[0].state

    run(main())


def test_a_client_that_gives_up_leaves_an_undelivered_answer_and_a_linear_history(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a b c d e f g h i j", tokens_per_s=20))
        session = new_session(renderer, engine)
        async with (
            serving(session, agentic_disconnect_grace_s=0.05) as (url, key),
            anthropic.AsyncAnthropic(base_url=url, api_key=key, timeout=PATIENCE_S, max_retries=0) as client,
        ):
            asking = asyncio.create_task(client.messages.create(model="m", max_tokens=64, messages=[USER]))
            await engine.first_token.wait()
            asking.cancel()
            await asyncio.wait([asking])
            while session.records[0].delivered is None:  # noqa: ASYNC110  (nobody is told when a client is missed)
                await asyncio.sleep(0.01)
            answer = await client.messages.create(model="m", max_tokens=64, messages=[USER])
        lost, kept = session.forest.responses
        assert (lost.delivered, 0 < len(lost.tokens) < len(kept.tokens)) == (0, True)
        assert implicit_context(session.forest, "linear").state is kept
        assert answer.stop_reason == "end_turn"

    run(main())


def test_text_comes_through_while_it_is_sampled(renderer):
    async def main():
        engine = HeardEngine(renderer, says("<think>hm</think>one two three four", tokens_per_s=100))
        session = new_session(renderer, engine)
        async with (
            serving(session, agentic_stream="tokens") as (url, key),
            openai.AsyncOpenAI(base_url=url, api_key=key, timeout=PATIENCE_S) as client,
            client.responses.stream(model="m", input="q") as stream,
        ):
            early = 0
            async for event in stream:
                early += event.type == "response.output_text.delta" and not engine.sampled
            final = await stream.get_final_response()
        assert early > 1
        assert final.output_text == "one two three four"
        assert [item.type for item in final.output] == ["reasoning", "message"]

    run(main())
