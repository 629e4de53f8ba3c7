"""Gateway overhead against the length of the history: one growing session, 400 characters a message, in every API.

Every server gets the same conversation at the same time (one turn each, in turn), so the ratios hold on a busy machine
too. ``direct`` is the call without any gateway. A peer is measured when it is named with the Python of its own virtual
environment: ``--peer agentcore=/path/to/python``.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from gateway_parts import PATHS, RESULTS, Connection, Conversation, Server, running, save, table, text_source

CHARACTERS = 400
TURNS = (10, 50, 100, 200, 400)
WINDOW = 10
"""A figure at turn n is over the turns n-9 to n of every session."""


Lane = tuple[str, Server, str]
"""Name of a row, server, API."""


class Talk:
    """One growing conversation on one lane; ``figures`` are (wall ms, server CPU ms) of each turn."""

    def __init__(self, lane: Lane, number: int, text: str) -> None:
        _, self._server, api = lane
        self._connection = Connection(*self._server.endpoint(number, api))
        self._conversation = Conversation(api)
        self._text = text
        self.figures: list[tuple[float, float]] = []

    def turn(self) -> None:
        at = len(self.figures) * CHARACTERS
        body = self._conversation.ask(self._text[at : at + CHARACTERS])
        cpu, start = self._server.cpu_ms(), time.perf_counter()
        answer = self._connection.post(body)
        wall = (time.perf_counter() - start) * 1e3
        self.figures.append((wall, self._server.cpu_ms() - cpu))
        self._conversation.hear(answer)

    def close(self) -> None:
        self._connection.close()


def measure(lanes: list[Lane], sessions: int, turns: int) -> dict[str, dict[int, dict[str, float]]]:
    """Per lane and turn: p50 of wall and mean of CPU, both in ms."""
    taken: dict[str, list[list[tuple[float, float]]]] = {name: [] for name, _, _ in lanes}
    order = random.Random(0)
    for number in range(sessions + 1):
        text = text_source(CHARACTERS * turns * 2)[number * CHARACTERS :]
        # A Session of its own for every conversation.
        talks = [Talk(lane, number + (sessions + 1) * place, text) for place, lane in enumerate(lanes)]
        for _ in range(turns if number else min(turns, 50)):  # The first, short one warms up.
            for talk in order.sample(talks, len(talks)):  # Nobody always comes behind the same neighbour's cold caches.
                talk.turn()
        for (name, _, _), talk in zip(lanes, talks, strict=True):
            talk.close()
            if number:
                taken[name].append(talk.figures)
    return {name: {turn: _at(runs, turn) for turn in TURNS if turn <= turns} for name, runs in taken.items()}


def _at(runs: list[list[tuple[float, float]]], turn: int) -> dict[str, float]:
    window = [figure for run in runs for figure in run[max(0, turn - WINDOW) : turn]]
    return {
        "wall_p50_ms": statistics.median(wall for wall, _ in window),
        "cpu_ms": statistics.fmean(cpu for _, cpu in window),
    }


def report(figures: dict[str, dict[int, dict[str, float]]]) -> str:
    rows = []
    for turn, direct in figures["direct"].items():
        for name, at in figures.items():
            wall, chat = at[turn]["wall_p50_ms"], figures[name.partition(",")[0]][turn]
            rows.append(
                [turn, 2 * turn - 1, name, wall, wall - direct["wall_p50_ms"], at[turn]["cpu_ms"],
                 wall / direct["wall_p50_ms"], wall / chat["wall_p50_ms"], at[turn]["cpu_ms"] / chat["cpu_ms"]]
            )  # fmt: skip
    head = ["turn", "messages", "server", "p50 ms", "minus direct", "cpu ms", "/ direct", "/ chat", "cpu / chat"]
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=3, help="measured sessions per server")
    parser.add_argument("--turns", type=int, default=400, help="turns per session")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="agentcore, rllm, verifiers")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the figures")
    options = parser.parse_args()
    ours = (options.sessions + 1) * (1 + 2 * len(PATHS))
    count = str(options.sessions + 1)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running("direct", "mock_upstream.py")),
            stack.enter_context(running("gateway alone", "serve_scripted.py", "--alone", "--sessions", str(ours))),
            stack.enter_context(running("relaxforge", "serve_scripted.py", "--sessions", str(ours))),
        ]
        lanes: list[Lane] = [("direct", servers[0], "chat")]
        for server in servers[1:]:
            lanes += [(server.name if api == "chat" else f"{server.name}, {api}", server, api) for api in PATHS]
        if options.peer:
            upstream = stack.enter_context(running("upstream", "mock_upstream.py", "--token-ids"))
        for name, _, python in (peer.partition("=") for peer in options.peer):
            arguments = ["--upstream", upstream.url, "--sessions", count]
            peer = stack.enter_context(running(name, f"peers/{name}.py", *arguments, python=python, keys=int(count)))
            servers.append(peer)
            lanes.append((name, peer, "chat"))
        figures = measure(lanes, options.sessions, options.turns)
        resident = {server.name: round(server.resident_mib(), 1) for server in servers}
    print(report(figures))
    print("resident MiB at the end:", resident)
    print(save("gateway", {"figures": figures, "resident_mib": resident}, options.results))


if __name__ == "__main__":
    main()
