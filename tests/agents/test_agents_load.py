"""Many agents and much output: the event loop keeps turning and memory stays flat."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from agent_parts import Told, parent_of, workshop

from relaxforge.agents.run_log import CHUNK
from relaxforge.agents.text import log_tail

STORM = 200
LOUD_BYTES = 200_000_000


async def longest_lag(stop: asyncio.Event) -> float:
    """The longest time, in seconds, by which the event loop came late."""
    lag = 0.0
    while not stop.is_set():
        due = time.monotonic() + 0.005
        await asyncio.sleep(0.005)
        lag = max(lag, time.monotonic() - due)
    return lag


def resident_kb(pid: int | str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def test_a_storm_of_launches_does_not_stall_the_event_loop(tmp_path: Path) -> None:
    async def go() -> None:
        async with workshop(tmp_path) as shop:
            launches = [shop.prepare("sleep 1000", f"train-g{number:06d}-00") for number in range(STORM)]
            stop = asyncio.Event()
            watch = asyncio.create_task(longest_lag(stop))
            agents = await asyncio.gather(*(shop.agents.launch(launch) for launch in launches))
            exits = await asyncio.gather(*(agent.kill() for agent in agents))
            stop.set()
            # Quiet machines measure a few milliseconds; the limit leaves room for busy ones.
            assert await watch < 0.25
            assert len({await agent.started() for agent in agents}) == STORM
            assert [ended.session_id for ended in exits] == [launch.session_id for launch in launches]

    asyncio.run(go())


def test_200_mb_of_output_cost_no_memory_and_the_tail_is_right(tmp_path: Path) -> None:
    go_on = Told(tmp_path, "go")
    loud = f"read < go; head -c {LOUD_BYTES} /dev/zero | tr '\\0' x; echo; echo the end"

    async def go() -> None:
        async with workshop(tmp_path) as shop:
            launch = shop.prepare(loud)
            agent = await shop.agents.launch(launch)
            watched = ("self", parent_of(await agent.started()))
            before = [resident_kb(pid) for pid in watched]
            go_on.answer()
            await agent.wait()
            tail = log_tail(launch.log_path, 8 * 1024, "secret")
            size = launch.log_path.stat().st_size
            assert shop.config.log_limit_bytes < size < shop.config.log_limit_bytes + 2 * CHUNK
            assert tail.endswith("x\nthe end")
            assert len(tail) == 8 * 1024 - 1
            for pid, was in zip(watched, before, strict=True):
                assert resident_kb(pid) - was < 4 * 1024

    asyncio.run(go())


def test_the_spawner_is_small() -> None:
    """Heavy imports would make every fork slow and the process big."""
    listing = "import sys, relaxforge.agents.spawner; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", listing], capture_output=True, check=True).stdout.decode().split()
    )
    heavy = {"asyncio", "torch", "numpy", "transformers", "starlette", "rich", "structlog", "psutil", "tyro", "json"}
    assert not loaded & heavy
    assert len(loaded) < 200
