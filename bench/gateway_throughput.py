"""Short requests per second at 1, 16 and 64 concurrent connections, client included on the same machine.

Every connection is a Session; every request a new one-message conversation of 100 characters.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvloop

from gateway_parts import RESULTS, Server, content_length, request_head, running, save, table

CONCURRENCY = (1, 16, 64)


async def one_connection(server: Server, number: int, requests: int) -> None:
    url, key = server.endpoint(number)
    head = request_head(url, key)
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    for request in range(requests):
        text = f"Question {request} of connection {number}: ".ljust(100, "?")
        body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": text}]})
        writer.write(head % len(body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(answer.decode())
        await reader.readexactly(content_length(answer))
    writer.close()
    await writer.wait_closed()


async def load(server: Server, concurrent: int, requests: int) -> dict[str, float]:
    each = requests // concurrent
    cpu, start = server.cpu_ms(), time.perf_counter()
    await asyncio.gather(*(one_connection(server, number, each) for number in range(concurrent)))
    seconds = time.perf_counter() - start
    done = each * concurrent
    return {"per_second": done / seconds, "cpu_ms": (server.cpu_ms() - cpu) / done}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=3200, help="requests per level of concurrency")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the figures")
    options = parser.parse_args()
    figures: dict[str, dict[int, dict[str, float]]] = {}
    rows = []
    sessions = ("--sessions", str(max(CONCURRENCY)))
    with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        servers = [
            stack.enter_context(running("direct", "mock_upstream.py")),
            stack.enter_context(running("gateway alone", "serve_scripted.py", "--alone", *sessions)),
            stack.enter_context(running("relaxforge", "serve_scripted.py", *sessions)),
        ]
        for concurrent in CONCURRENCY:
            for server in servers:
                runner.run(load(server, concurrent, 10 * concurrent))
                at = runner.run(load(server, concurrent, options.requests))
                figures.setdefault(server.name, {})[concurrent] = at
                rows.append([concurrent, server.name, at["per_second"], at["cpu_ms"]])
    print(table(["concurrent", "server", "requests/s", "cpu ms"], rows))
    print(save("gateway-throughput", {"figures": figures}, options.results))


if __name__ == "__main__":
    main()
