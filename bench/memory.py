"""Claim: a captured token costs at most 8 bytes in arrays plus 2 KB per Turn, and nothing is left after export.

10,000 requests over 200 Sessions of 50 Turns each, 400-character messages both ways, each of its own, through the
dialect, the Session, the forest and the scripted engine of this process; without sockets, so that no client's memory is
in the figures. And one Session of 300 Turns and about 100,000 tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import time
import tracemalloc
from typing import Any

import msgspec
import psutil

from gateway_parts import RESULTS, save
from relaxforge.core.sessions import AgentOutput
from relaxforge.forest.config import HistoryConfig
from relaxforge.gateway.chat import Chat
from relaxforge.rollout.export import export
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.record import dump_line
from relaxforge.rollout.session import Session
from serve_scripted import scripted_sessions

CHARACTERS = 400
"""Of a message, in the wave of Sessions. One character is about one token of this tokenizer."""

LONG_TURNS, LONG_CHARACTERS = 300, 160


def settled_rss() -> int:
    """Resident bytes once everything unused went back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return psutil.Process().memory_info().rss


async def converse(session: Session, turns: int, characters: int) -> None:
    dialect = Chat("m")
    messages: list[dict[str, object]] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": text("question", turn, characters)})
        body = msgspec.json.encode({"model": "m", "messages": messages})
        request = dialect.read(body, {}, session)
        answer = await session.turn(request)
        written = json.loads(dialect.write(request, answer))
        session.delivered(answer.request_id, complete=True)
        messages.append(written["choices"][0]["message"])


def put_away(session: Session) -> int:
    """Export a Session as a run does, and return the bytes of its dump line."""
    contexts = export(session.forest, AgentOutput(reward=1.0), HistoryConfig(), one=True)
    outcome = Outcome(session, contexts=contexts, reward=1.0, advantage=0.0)
    return len(msgspec.json.encode(dump_line(outcome, run_id="bench", incarnation=0, rollout_id=0)))


def text(kind: str, number: int, characters: int) -> str:
    return f"{kind} {number} ".ljust(characters, ".")


def opened(sessions: int, turns: int, characters: int) -> list[Session]:
    registry, keys = scripted_sessions(sessions, tuple(text("answer", turn, characters) for turn in range(turns)))
    return [registry.open(key) for key in keys]


async def wave(live: list[Session], turns: int, characters: int) -> None:
    for session in live:
        await converse(session, turns, characters)


async def measure(sessions: int, turns: int) -> dict[str, Any]:
    """The same wave twice: the first fills pools and caches, the second must come back to where the first ended."""
    live = opened(sessions, turns, CHARACTERS)
    await wave(live, turns, CHARACTERS)
    dumped = sum(put_away(session) for session in live)
    del live
    before = settled_rss()
    live = opened(sessions, turns, CHARACTERS)
    started = time.perf_counter()
    await wave(live, turns, CHARACTERS)
    seconds = time.perf_counter() - started
    full = settled_rss()
    [put_away(session) for session in live]
    del live
    after = settled_rss()
    return {
        "requests": sessions * turns,
        "requests_per_s": sessions * turns / seconds,
        "baseline_mib": before / 2**20,
        "full_mib": full / 2**20,
        "after_export_mib": after / 2**20,
        "after_export_to_baseline": after / before,
        "dump_mib": dumped / 2**20,
        **await allocated(min(sessions, 20), turns, CHARACTERS),
        "one_long_session": await allocated(1, LONG_TURNS, LONG_CHARACTERS),
    }


async def allocated(sessions: int, turns: int, characters: int) -> dict[str, float]:
    """What Turns make live Sessions hold, counted at the allocator: arrays, message text, and everything else."""
    live = opened(sessions, turns, characters)
    gc.collect()
    tracemalloc.start(1)
    await wave(live, turns, characters)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    states = [state for session in live for state in session.forest.states]
    tokens = sum(len(state.tokens) for state in states)
    arrays = sum(state.tokens.itemsize * len(state.tokens) + state.logprobs.itemsize * len(state.logprobs)
                 for state in states)  # fmt: skip
    characters_held = sum(len(message.text) for state in states for message in state.messages)
    requests = sessions * turns
    return {
        "turns": turns,
        "tokens_per_session": tokens / sessions,
        "array_bytes_per_token": arrays / tokens,
        "text_bytes_per_turn": characters_held / requests,
        "other_bytes_per_turn": (held - arrays - characters_held) / requests,
        "bytes_per_turn": held / requests,
        "allowed_bytes_per_turn": 8 * tokens / requests + 2048,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--turns", type=int, default=50)
    options = parser.parse_args()
    figures = asyncio.run(measure(options.sessions, options.turns))
    long = figures["one_long_session"]
    for name, value in [*figures.items(), *((f"one long Session: {name}", value) for name, value in long.items())]:
        if value is not long:
            print(f"{name:40} {value:12.2f}")
    print(save("memory", figures, RESULTS))
