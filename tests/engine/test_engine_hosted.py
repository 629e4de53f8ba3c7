"""A hosted model: what is sent to its API, what its answers mean, and what its failures become."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from relaxforge.core.errors import ConfigError, EngineError, RequestError
from relaxforge.core.messages import Message, ModelRequest, RetryHint, Tool, ToolCall
from relaxforge.core.turns import GenerateRequest, Sampling, Usage, WeightUpdate, token_ids
from relaxforge.engine.choice import read_budget, read_model
from relaxforge.engine.hosted import TRIES, HostedEngine

KEY = "sk-very-secret"
SAMPLING = Sampling(max_tokens=32, temperature=0.5, stop=("END",), seed=3)


def answer(content="hello", finish="stop", **message):
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}
    choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return 200, {"choices": [choice], "usage": usage}


class Provider:
    """An HTTP server that answers each request with the next of ``replies``; a number alone: a bare status."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.asked = []
        self.busy = asyncio.Event()

    @asynccontextmanager
    async def serving(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        engine = HostedEngine(f"http://127.0.0.1:{port}/v1", "big", KEY, first_pause_s=0.01)
        async with server:
            try:
                yield engine
            finally:
                await engine.close()

    async def _serve(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
                body = await reader.readexactly(int({k.lower(): v for k, v in headers.items()}["content-length"]))
                self.asked.append((head.split(b"\r\n")[0].decode(), headers, json.loads(body)))
                self.busy.set()
                reply = self.replies.pop(0)
                if reply == "silence":
                    await asyncio.sleep(3600)
                if reply == "cut":
                    break
                status, content = reply if isinstance(reply, tuple) else (reply, {"error": {"message": f"key {KEY}"}})
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                writer.write(
                    f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-length: {len(data)}\r\n\r\n".encode()
                    + data
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def request(*messages, **rest):
    return ModelRequest("chat", "m", messages or (Message("user", "q"),), RetryHint(b""), **rest)


def ask(provider, given=None, sampling=SAMPLING):
    async def main():
        async with provider.serving() as engine:
            return await engine.answer("r0", given or request(), sampling)

    return asyncio.run(asyncio.wait_for(main(), 20))


def test_a_request_is_sent_as_any_client_would_and_its_answer_read():
    provider = Provider(answer())
    search = Tool("search", "Finds pages", '{"type":"object"}')
    history = (Message("user", "q"), Message("assistant", "", tool_calls=(ToolCall("c1", "search", "{}"),)))
    found = ask(provider, request(*history, Message("tool", "r", tool_call_id="c1"), tools=(search,)))
    line, headers, body = provider.asked[0]
    assert (line, headers["Authorization"]) == ("POST /v1/chat/completions HTTP/1.1", f"Bearer {KEY}")
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool"]
    assert body["tools"][0]["function"]["name"] == "search"
    assert {key: body[key] for key in ("model", "max_tokens", "temperature", "stop", "seed")} == {
        "model": "big", "max_tokens": 32, "temperature": 0.5, "stop": ["END"], "seed": 3,
    }  # fmt: skip
    assert (found.message.content, found.finish, found.usage) == ("hello", "stop", Usage(9, 4, 2))


def test_tool_calls_reasoning_and_a_cut_answer_keep_their_meaning():
    call = {"id": "c9", "type": "function", "function": {"name": "search", "arguments": '{ "q":  "x" }'}}
    found = ask(Provider(answer(None, "tool_calls", tool_calls=[call], reasoning_content="hm")))
    assert found.message.tool_calls == (ToolCall("c9", "search", '{"q":"x"}'),)
    assert (found.message.reasoning, found.message.content, found.finish) == ("hm", "", "tool_calls")
    assert ask(Provider(answer("so", "length"))).finish == "length"


@pytest.mark.parametrize("first", [429, 500, 503, 529, "cut"])
def test_what_may_pass_is_tried_again(first):
    provider = Provider(first if first != 529 else 502, answer())
    assert ask(provider).message.content == "hello"
    assert len(provider.asked) == 2


def test_a_provider_that_stays_down_is_an_engine_error_without_the_key():
    provider = Provider(*[503] * TRIES)
    with pytest.raises(EngineError, match=r"hosted model big at 127.0.0.1 answered 503 \(5 tries\): key \[redacted\]"):
        ask(provider)
    assert len(provider.asked) == TRIES


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_is_said_at_once(status):
    provider = Provider(status)
    with pytest.raises(EngineError, match=f"answered {status}: key"):
        ask(provider)
    assert len(provider.asked) == 1


def test_a_request_that_the_provider_refuses_is_the_agents_to_hear():
    with pytest.raises(RequestError, match="the hosted model refuses this request: too long") as caught:
        ask(Provider((400, {"error": {"message": "too long"}})))
    assert (caught.value.status, caught.value.code) == (400, "upstream_refused")


@pytest.mark.parametrize("content", [b"<html>", b"{}", b'{"choices": [{"message": {"content": 3}}]}', b"[1]", b"\xff"])
def test_an_answer_that_is_none_is_an_engine_error(content):
    with pytest.raises(EngineError, match="no chat completion"):
        ask(Provider((200, content)))


def test_nobody_listening_is_an_engine_error():
    async def main():
        engine = HostedEngine("http://127.0.0.1:9/v1", "big", first_pause_s=0.001)
        try:
            await engine.answer("r", request(), SAMPLING)
        finally:
            await engine.close()

    with pytest.raises(EngineError, match=r"hosted model big at 127\.0\.0\.1: ConnectError"):
        asyncio.run(main())


def test_an_aborted_request_ends_now():
    async def main():
        provider = Provider("silence")
        async with provider.serving() as engine:
            asking = asyncio.create_task(engine.answer("r0", request(), SAMPLING))
            await provider.busy.wait()
            assert (await engine.capacity()).running == 1
            await engine.abort("r0")
            with pytest.raises(EngineError, match="aborted"):
                await asking

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_hosted_model_is_not_trained_and_samples_no_ids():
    async def main():
        engine = HostedEngine("http://127.0.0.1:9", "big")
        with pytest.raises(EngineError, match="cannot be trained"):
            await engine.load(WeightUpdate(1, "x"))
        with pytest.raises(EngineError, match="takes messages"):
            await engine.generate(GenerateRequest("s", "r", token_ids([1]), 0, SAMPLING))
        await engine.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({}, 'either "engine"'),
        ({"engine": "local", "upstream": {"baseUrl": "http://h", "model": "m"}}, 'either "engine"'),
        ({"engine": "gpu"}, "Invalid enum value 'gpu'"),
        ({"engine": "local", "replies": "r.jsonl"}, "belongs to the scripted engine"),
        ({"engine": "scripted", "replies": "../r"}, "inside the bundle"),
        ({"engine": "scripted", "replies": "/etc/passwd"}, "inside the bundle"),
        ({"upstream": {"model": "m"}}, "http or https"),
        ({"upstream": {"baseUrl": "ftp://h", "model": "m"}}, "http or https"),
        ({"upstream": {"baseUrl": "http://u:p@h", "model": "m"}}, "without a password"),
        ({"upstream": {"baseUrl": "http://h", "model": "m"}, "model": "x"}, "neither"),
        ({"upstream": {"baseUrl": "http://h"}}, "missing required field `model`"),
        ({"engine": "local", "temperature": 11}, "<= 10"),
        ({"engine": "local", "colour": "red"}, "unknown field `colour`"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused_in_words(model, words):
    with pytest.raises(ConfigError, match=words):
        read_model(model)


def test_models_and_budgets_are_read_with_their_defaults():
    assert (read_model({"engine": "local"}).model, read_model({"engine": "scripted"}).label) == (
        "tiny",
        "scripted (tiny)",
    )
    hosted = read_model(
        {"upstream": {"baseUrl": "https://h/v1", "model": "big", "apiKeySecret": "K"}, "temperature": 0}
    )
    assert (hosted.engine, hosted.label, hosted.upstream.api_key_secret, hosted.sampling.temperature) == (
        "hosted", "big", "K", 0,
    )  # fmt: skip
    assert read_budget({}).max_response_tokens == 1024
    assert read_budget({"timeoutS": 5}).timeout_s == 5
    with pytest.raises(ConfigError, match="budget: "):
        read_budget({"timeoutS": 0})
