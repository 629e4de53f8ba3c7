"""What is kept of what agents print, and what it costs when they print too much."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

import pytest
from agent_parts import Told, workshop

from relaxforge.agents.run_log import CHUNK, LogPump, RunLog

MIB = 1024 * 1024


def test_an_output_longer_than_its_limit_keeps_its_start_and_its_end_and_says_so(tmp_path: Path) -> None:
    async def go() -> None:
        async with workshop(tmp_path, agent_log_limit_mb=1) as shop:
            launch, ended = await shop.run("echo begin; yes | head -c 5000000; echo; echo the end; exit 3")
            assert ended.code == 3
            text = launch.log_path.read_bytes()
            assert text.startswith(b"begin\ny\ny\n")
            assert text.endswith(b"y\n\nthe end\n")
            start, line, end = text.partition(b"\n[")
            missing, words, end = end.partition(b" bytes are missing here: only 1048576 and the end are kept]\n")
            assert len(start) == MIB
            assert len(end) == CHUNK
            assert len(start) + int(missing) + len(end) == 5_000_000 + len("begin\n\nthe end\n")
            assert line
            assert words

    asyncio.run(go())


@pytest.mark.parametrize("size", [0, 9, 10, 11, 10 + CHUNK])
def test_nothing_is_missing_that_the_end_can_hold(tmp_path: Path, size: int) -> None:
    log = RunLog(tmp_path / "run.log", 10)
    said = bytes(ord("a") + index % 26 for index in range(size))
    for start in range(0, size, 4):
        log.write(said[start : start + 4])
    log.close()
    assert (tmp_path / "run.log").read_bytes() == said


def test_a_full_disk_costs_only_the_log() -> None:
    log = RunLog(Path("/dev/full"), 10)
    log.write(b"x" * 20)
    log.close()


def test_what_was_printed_before_the_end_of_a_session_is_in_its_log(tmp_path: Path) -> None:
    """Hundreds of Sessions, each closed the moment after it printed, whether the thread has come to it or not."""
    pump = LogPump(MIB)
    for number in range(300):
        name, output = pump.open(tmp_path / "run.log")
        os.write(output, b"line %d\n" % number)
        if number % 2:
            os.close(output)
        pump.close(name)
        if not number % 2:
            os.close(output)
    assert (tmp_path / "run.log").read_text().splitlines() == [f"line {number}" for number in range(300)]


def test_an_agent_that_closed_its_output_costs_nothing_while_it_works_on(tmp_path: Path) -> None:
    told = Told(tmp_path, "go")

    async def go() -> None:
        async with workshop(tmp_path) as shop:
            launch = shop.prepare("echo said; exec >&- 2>&-; read < go")
            agent = await shop.agents.launch(launch)
            told.answer()
            assert (await agent.wait()).code == 0
            assert launch.log_path.read_text() == "said\n"

    asyncio.run(go())


def test_agents_may_open_as_many_files_as_we_may(tmp_path: Path) -> None:
    async def go() -> None:
        async with workshop(tmp_path) as shop:
            launch, _ = await shop.run("sleep 0.1; ulimit -Sn; ulimit -Hn")
            ours = [str(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE)]
            assert launch.log_path.read_text().split() == ours

    asyncio.run(go())
