"""The direct call: a model server that parses the request and returns 400 characters, nothing else.

``--token-ids`` adds what a proxy that captures tokens expects from its upstream: prompt and answer ids, logprobs.
Prints one JSON line with its address and process id, then serves until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
from typing import Any

import msgspec
import uvicorn
import uvloop

ANSWER = "The file was updated as requested and all checks pass. ".ljust(400, ".")[:400]
CHARACTERS_PER_TOKEN = 4


class Upstream:
    """One ASGI application for every path."""

    def __init__(self, token_ids: bool) -> None:
        self._token_ids = token_ids

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        pieces, more = [], True
        while more:
            message = await receive()
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
        body = self._answer(b"".join(pieces)) if scope["method"] == "POST" else b'{"status":"ok","data":[]}'
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, body: bytes) -> bytes:
        messages = msgspec.json.decode(body)["messages"]
        prompt = sum(len(message["content"]) for message in messages) // CHARACTERS_PER_TOKEN
        completion = len(ANSWER) // CHARACTERS_PER_TOKEN
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": ANSWER},
            "finish_reason": "stop",
        }
        shown: dict[str, Any] = {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": 0,
            "model": "mock",
            "choices": [choice],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            },
        }
        if self._token_ids:
            shown["prompt_token_ids"] = [number % 30_000 for number in range(prompt)]
            choice["token_ids"] = list(range(100, 100 + completion))
            choice["logprobs"] = {
                "content": [{"token": "x", "logprob": -0.1, "bytes": [120], "top_logprobs": []}] * completion
            }
        return msgspec.json.encode(shown)


async def serve(token_ids: bool) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "pid": os.getpid()}), flush=True)
    config = uvicorn.Config(
        Upstream(token_ids), http="httptools", ws="none", lifespan="off", log_config=None, access_log=False,
        proxy_headers=False, server_header=False, timeout_keep_alive=3600,
    )  # fmt: skip
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--token-ids", action="store_true")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(parser.parse_args().token_ids))
