"""Calls, events and the end of a child process, with real processes."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from relaxforge.ipc.child import ChildChannel
from relaxforge.ipc.frames import Frame, pack
from relaxforge.ipc.parent import Child, ChildDied, ChildFailed

HERE = str(Path(__file__).parent)
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([HERE, *sys.path])}


@asynccontextmanager
async def child(*args: str, log: Path | None = None) -> AsyncIterator[Child]:
    started = await Child.start("echo", "echo_child", args=args, env=ENV, log_path=str(log) if log else None)
    try:
        yield started
    finally:
        await started.close(0.2 if args else 20)


def test_calls_get_their_own_answers_however_many_run_at_once() -> None:
    async def go() -> None:
        async with child() as echo:
            bodies = [{"number": number, "text": "x" * number} for number in range(200)]
            assert await asyncio.gather(*(echo.call("echo", body) for body in bodies)) == bodies

    asyncio.run(go())


def test_a_body_larger_than_the_socket_buffer_crosses() -> None:
    async def go() -> None:
        async with child() as echo:
            body = os.urandom(8 << 20)
            assert await echo.call("echo", body) == body

    asyncio.run(go())


def test_events_arrive_in_order_before_the_answer_and_only_at_their_call() -> None:
    async def go() -> None:
        async with child() as echo:
            first: list[int] = []
            second: list[int] = []
            answers = await asyncio.gather(
                echo.call("count", 50, on_event=first.append), echo.call("count", 3, on_event=second.append)
            )
            assert answers == ["counted", "counted"]
            assert (first, second) == (list(range(50)), list(range(3)))

    asyncio.run(go())


def test_a_notice_is_heard_and_not_answered() -> None:
    async def go() -> None:
        async with child() as echo:
            await echo.notify("remember", "this")
            assert await echo.call("told") == "this"

    asyncio.run(go())


def test_an_error_comes_back_as_the_childs_words() -> None:
    async def go() -> None:
        async with child() as echo:
            with pytest.raises(ChildFailed, match=r"^ValueError: no weights$"):
                await echo.call("fail", "no weights")
            assert await echo.call("echo", 1) == 1

    asyncio.run(go())


def test_everybody_who_waits_learns_that_the_child_died() -> None:
    async def go() -> None:
        async with child() as echo:
            waiting = asyncio.gather(*(echo.call("hang") for _ in range(3)), return_exceptions=True)
            with pytest.raises(ChildDied, match=rf"echo \(pid {echo.pid}\) ended with exit status 5"):
                await echo.call("die", 5)
            assert [str(error) for error in await waiting] == [f"echo (pid {echo.pid}) ended with exit status 5"] * 3
            for late in (echo.call("echo"), echo.notify("remember")):
                with pytest.raises(ChildDied, match="exit status 5"):
                    await late

    asyncio.run(go())


def test_a_killed_child_is_reported_with_the_signal() -> None:
    async def go() -> None:
        async with child() as echo:
            os.kill(echo.pid, signal.SIGKILL)
            with pytest.raises(ChildDied, match="signal 9"):
                await echo.call("hang")

    asyncio.run(go())


def test_close_lets_the_child_end_by_itself_and_tells_who_waits() -> None:
    async def go() -> None:
        async with child() as echo:
            waiting = asyncio.create_task(echo.call("hang"))
            await echo.call("echo")
            await echo.close()
            with pytest.raises(ChildDied, match="exit status 7"):
                await waiting
            with pytest.raises(ChildDied):
                await echo.call("echo")

    asyncio.run(go())


def test_close_kills_a_child_that_does_not_end() -> None:
    async def go() -> None:
        async with child("deaf") as echo:
            waiting = asyncio.create_task(echo.call("hang"))
            await echo.call("echo")
            await echo.close(0.1)
            with pytest.raises(ChildDied, match="signal 9"):
                await waiting

    asyncio.run(go())


def test_a_child_does_not_hand_its_socket_on(tmp_path: Path) -> None:
    async def go() -> None:
        async with child(log=tmp_path / "child.log") as echo:
            assert not [name for name in await echo.call("environment") if name.startswith("RELAXFORGE_IPC")]

    asyncio.run(go())
    assert (tmp_path / "child.log").read_text() == ""


def test_a_child_ends_when_its_main_is_killed() -> None:
    source = (
        "import asyncio, os\n"
        "from relaxforge.ipc.parent import Child\n"
        "async def go():\n"
        "    child = await Child.start('echo', 'echo_child')\n"
        "    print(child.pid, flush=True)\n"
        "    await child.call('hang')\n"
        "asyncio.run(go())\n"
    )
    with subprocess.Popen([sys.executable, "-c", source], env=ENV, stdout=subprocess.PIPE) as main:
        assert main.stdout is not None
        pid = os.pidfd_open(int(main.stdout.readline()))
        main.kill()
    try:
        assert select.select([pid], [], [], 20)[0], "the child lives on"
    finally:
        os.close(pid)


def test_a_frame_cut_by_mains_death_ends_the_channel() -> None:
    ours, theirs = socket.socketpair()
    channel = ChildChannel(theirs.detach(), lifeline_exit=None)
    ours.sendall(pack(Frame("call", 1, "echo", "whole")) + pack(Frame("call", 2, "echo", "cut"))[:-2])
    ours.close()
    assert [frame.body for frame in channel] == ["whole"]
    assert channel.closed
    channel.reply(Frame("call", 1, "echo", None), "nobody reads this")


def test_poll_returns_on_time_on_news_and_when_woken() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        channel = ChildChannel(theirs.detach(), lifeline_exit=None)
        assert channel.poll() is None
        assert channel.poll(0.01) is None
        channel.wake()
        woken = channel.poll(None)
        assert woken is not None
        assert woken.method == "wake"
        ours.sendall(pack(Frame("notice", 1, "news", 1)))
        assert channel.poll(None) == Frame("notice", 1, "news", 1)
    assert channel.poll(None) is None
    assert channel.closed
