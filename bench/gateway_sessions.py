"""Many growing Sessions at once, in every API: requests per second, latency, and how late the event loop runs.

Every connection is a Session whose conversation grows by a question and an answer of 400 characters per turn. Paced,
an agent works for ``PAUSE_S`` between two turns, as agents do; without a pause all ask as fast as they are answered,
and the lag is then the time of one request times the Sessions that wait.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
import urllib.request
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvloop

from gateway_parts import (
    PATHS,
    RESULTS,
    Conversation,
    Server,
    content_length,
    request_head,
    running,
    save,
    table,
    text_source,
)

CONCURRENCY = (16, 64)
CHARACTERS = 400
PAUSE_S = 0.5


FIGURES = ("requests/s", "p50 ms", "p99 ms", "cpu ms", "lag p50 ms", "lag p99 ms")


async def one_session(server: Server, api: str, number: int, turns: int, pause_s: float) -> list[float]:
    """Milliseconds of each turn."""
    await asyncio.sleep(pause_s * number / sum(CONCURRENCY) % (pause_s or 1))
    url, key = server.endpoint(number, api)
    head, parts = request_head(url, key), urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    text, conversation, walls = text_source(CHARACTERS), Conversation(api), []
    for turn in range(turns):
        body = conversation.ask(f"{turn} {text}")
        start = time.perf_counter()
        writer.write(head % len(body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(answer.decode())
        said = await reader.readexactly(content_length(answer))
        walls.append((time.perf_counter() - start) * 1e3)
        conversation.hear(said)
        await asyncio.sleep(pause_s)
    writer.close()
    await writer.wait_closed()
    return walls


def loop_lag(server: Server) -> dict[str, float]:
    """The lag since it was last asked for."""
    with urllib.request.urlopen(f"{server.admin}/debug_state") as answer:
        return msgspec.json.decode(answer.read(), type=dict[str, float])


async def load(server: Server, api: str, numbers: range, turns: int, pause_s: float) -> dict[str, float]:
    await asyncio.to_thread(loop_lag, server)
    start, cpu = time.perf_counter(), server.cpu_ms()
    sessions = [one_session(server, api, number, turns, pause_s) for number in numbers]
    walls = sorted(wall for own in await asyncio.gather(*sessions) for wall in own)
    seconds = time.perf_counter() - start
    lag = await asyncio.to_thread(loop_lag, server)
    return {
        "per_second": len(walls) / seconds,
        "wall_p50_ms": statistics.median(walls),
        "wall_p99_ms": walls[len(walls) * 99 // 100],
        "cpu_ms": (server.cpu_ms() - cpu) / len(walls),
        "loop_lag_p50_ms": lag["p50_ms"],
        "loop_lag_p99_ms": lag["p99_ms"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=40, help="turns per Session")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the figures")
    options = parser.parse_args()
    figures: dict[str, dict[str, dict[int, dict[str, float]]]] = {"paced": {}, "saturated": {}}
    rows: list[list[object]] = []
    first = 0
    sessions = str(2 * sum(CONCURRENCY) * len(PATHS))
    with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        server = stack.enter_context(running("relaxforge", "serve_scripted.py", "--sessions", sessions))
        for (pace, found), concurrent, api in product(figures.items(), CONCURRENCY, PATHS):
            numbers, pause_s = range(first, first + concurrent), PAUSE_S if pace == "paced" else 0.0
            at = runner.run(load(server, api, numbers, options.turns, pause_s))
            first += concurrent
            found.setdefault(api, {})[concurrent] = at
            rows.append([pace, concurrent, api, *at.values()])
    print(table(["pace", "Sessions", "api", *FIGURES], rows))
    print(save("gateway-sessions", {"figures": figures}, options.results))


if __name__ == "__main__":
    main()
