"""Real agents through a real spawner: what they see, how they end, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agent_parts import Told, ends_within, is_running, parent_of, workshop, write_stubborn

from relaxforge.agents import runner
from relaxforge.core.errors import AgentError
from relaxforge.core.sessions import FailureCategory


def test_exit_status_duration_and_output_of_both_streams_are_kept(tmp_path: Path) -> None:
    async def go() -> None:
        async with workshop(tmp_path) as shop:
            launch, ended = await shop.run("echo to stdout; echo to stderr >&2; exit 3")
            assert (ended.session_id, ended.code, ended.signal) == (launch.session_id, 3, None)
            assert 0 < ended.duration_s < 60
            assert ended.survivors == 0
            assert launch.log_path.read_text() == "to stdout\nto stderr\n"

    asyncio.run(go())


def test_a_leader_killed_by_a_signal_is_reported_with_it(tmp_path: Path) -> None:
    async def go() -> None:
        async with workshop(tmp_path) as shop:
            _, ended = await shop.run("kill -SEGV $$")
            assert (ended.code, ended.signal) == (None, signal.SIGSEGV)

    asyncio.run(go())


def test_an_agent_starts_in_its_cwd_with_empty_stdin_and_a_session_of_its_own(tmp_path: Path) -> None:
    async def go() -> None:
        async with workshop(tmp_path) as shop:
            launch, _ = await shop.run("cat; pwd; ps -o pgid=,sid= -p $$ | tr -s ' '; echo $$")
            cwd, ids, pid = launch.log_path.read_text().splitlines()
            assert cwd == str(tmp_path)
            assert ids.split() == [pid, pid]

    asyncio.run(go())


def test_an_agent_reads_its_input_and_leaves_its_output_where_the_variables_say(tmp_path: Path) -> None:
    async def go() -> None:
        async with workshop(tmp_path) as shop:
            launch = shop.prepare('cp "$RELAX_INPUT_JSON" "$RELAX_OUTPUT_JSON"', metadata={"task": "é"})
            await (await shop.agents.launch(launch)).wait()
            assert json.loads(launch.output_path.read_text()) == {"metadata": {"task": "é"}}

    asyncio.run(go())


@pytest.mark.parametrize("cwd", ["missing", "file"])
def test_an_agent_that_cannot_start_is_our_fault(tmp_path: Path, cwd: str) -> None:
    (tmp_path / "file").touch()

    async def go() -> None:
        async with workshop(tmp_path, agent_cwd=str(tmp_path / cwd)) as shop:
            with pytest.raises(AgentError, match=f"cannot be started in {tmp_path / cwd}") as caught:
                await shop.run("true")
            assert caught.value.category is FailureCategory.ENV_SETUP

    asyncio.run(go())


def test_a_background_child_that_ignores_sigterm_is_gone_when_the_session_is_over(tmp_path: Path) -> None:
    told, go_on = write_stubborn(tmp_path), Told(tmp_path, "go")

    async def go() -> None:
        async with workshop(tmp_path) as shop:
            process = await shop.agents.launch(shop.prepare("bash stubborn.sh & read < go"))
            child = await told.pid()
            go_on.answer()
            ended = await process.wait()
            assert not is_running(child)
            assert (ended.code, ended.survivors) == (0, 1)

    asyncio.run(go())


def test_a_detached_daemon_in_a_session_of_its_own_is_gone_too(tmp_path: Path) -> None:
    told, go_on = write_stubborn(tmp_path), Told(tmp_path, "go")

    async def go() -> None:
        async with workshop(tmp_path) as shop:
            process = await shop.agents.launch(shop.prepare("(setsid bash stubborn.sh &); read < go"))
            daemon = await told.pid()
            go_on.answer()
            ended = await process.wait()
            assert not is_running(daemon)
            assert (ended.code, ended.survivors) == (0, 1)

    asyncio.run(go())


def test_children_that_obey_sigterm_do_not_cost_the_grace_period(tmp_path: Path) -> None:
    told = Told(tmp_path)

    async def go() -> None:
        async with workshop(tmp_path, agent_kill_grace=60.0) as shop:
            begun = time.monotonic()
            process = await shop.agents.launch(shop.prepare("sleep 1000 & echo $! > told"))
            child = await told.pid()
            assert (await process.wait()).survivors == 1
            assert time.monotonic() - begun < 30
            assert not is_running(child)

    asyncio.run(go())


def test_a_daemon_without_our_variables_is_ended_once_no_session_is_left(tmp_path: Path) -> None:
    told, go_on = write_stubborn(tmp_path), Told(tmp_path, "go")

    async def go() -> None:
        async with workshop(tmp_path) as shop:
            other = await shop.agents.launch(shop.prepare("sleep 1000", "train-g000000-01"))
            process = await shop.agents.launch(shop.prepare("(setsid env -i bash stubborn.sh &); read < go"))
            stray = await told.pid()
            go_on.answer()
            await process.wait()
            assert is_running(stray)
            await other.kill()
            assert await asyncio.to_thread(ends_within, stray, 20)

    asyncio.run(go())


def test_kill_ends_a_hanging_agent_with_everything_it_started(tmp_path: Path) -> None:
    told = write_stubborn(tmp_path)

    async def go() -> None:
        async with workshop(tmp_path) as shop:
            process = await shop.agents.launch(shop.prepare("trap '' TERM; setsid bash stubborn.sh; sleep 1000"))
            child = await told.pid()
            first, second = await asyncio.gather(process.kill(), process.kill())
            assert first == second
            assert first.signal == signal.SIGKILL
            assert not is_running(child)
            assert not is_running(await process.started())

    asyncio.run(go())


def test_kill_gives_an_agent_the_grace_period_to_tidy_up(tmp_path: Path) -> None:
    told = Told(tmp_path)

    async def go() -> None:
        async with workshop(tmp_path, agent_kill_grace=60.0) as shop:
            process = await shop.agents.launch(
                shop.prepare("trap 'echo tidied; exit 7' TERM; sleep 1000 & echo up > told; wait")
            )
            await told.line()
            ended = await process.kill()
            assert ended.code == 7
            assert (shop.sessions_dir / "train-g000000-00" / "run.log").read_text() == "tidied\n"

    asyncio.run(go())


def test_kill_after_the_end_returns_the_same_exit(tmp_path: Path) -> None:
    async def go() -> None:
        async with workshop(tmp_path) as shop:
            process = await shop.agents.launch(shop.prepare("exit 4"))
            ended = await process.wait()
            assert await process.kill() == ended

    asyncio.run(go())


def test_a_launch_that_is_cancelled_leaves_no_agent(tmp_path: Path) -> None:
    async def go() -> None:
        async with workshop(tmp_path) as shop:
            launch = shop.prepare("sleep 1000")
            starting = asyncio.create_task(shop.agents.launch(launch))
            await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            assert not list(marked(launch.io_dir))

    asyncio.run(go())


def test_close_ends_running_agents_and_tells_who_waits(tmp_path: Path) -> None:
    async def go() -> None:
        async with workshop(tmp_path) as shop:
            process = await shop.agents.launch(shop.prepare("sleep 1000"))
            waiting = asyncio.create_task(process.wait())
            await shop.agents.close()
            assert (await waiting).signal == signal.SIGTERM

    asyncio.run(go())


def test_a_killed_spawner_takes_its_agents_with_it_and_is_replaced(tmp_path: Path) -> None:
    told = write_stubborn(tmp_path)

    async def go() -> None:
        async with workshop(tmp_path) as shop:
            victims = [
                await shop.agents.launch(shop.prepare("(setsid bash stubborn.sh &); sleep 1000")),
                await shop.agents.launch(shop.prepare("sleep 1000", "train-g000000-01")),
            ]
            escaped = await told.pid()
            leaders = [await victim.started() for victim in victims]
            os.kill(parent_of(leaders[0]), signal.SIGKILL)
            for victim in victims:
                with pytest.raises(AgentError, match=r"spawner .* ended with signal 9") as caught:
                    await victim.wait()
                assert caught.value.category is FailureCategory.WORKER_LOST
            assert not any(is_running(pid) for pid in (escaped, *leaders))
            _, ended = await shop.run("exit 5", "train-g000001-00")
            assert ended.code == 5

    asyncio.run(go())


def test_a_spawner_that_is_stuck_does_not_keep_a_run_from_ending(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(runner, "GIVE_UP_S", 0.0)
    monkeypatch.setattr(runner, "SLACK_S", 0.1)

    async def go() -> None:
        async with workshop(tmp_path) as shop:
            process = await shop.agents.launch(shop.prepare("sleep 1000"))
            leader = await process.started()
            os.kill(parent_of(leader), signal.SIGSTOP)
            with pytest.raises(AgentError, match=r"spawner .* ended with signal 9"):
                await process.kill()
            assert not is_running(leader)

    asyncio.run(go())


MAIN = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from agent_parts import workshop

async def go():
    async with workshop(Path({folder!r})) as shop:
        agent = await shop.agents.launch(shop.prepare({command!r}))
        await agent.wait()

asyncio.run(go())
"""


def test_when_main_is_killed_no_agent_stays(tmp_path: Path) -> None:
    told = write_stubborn(tmp_path)
    command = "(setsid bash stubborn.sh &); sleep 1000"
    source = MAIN.format(tests=str(Path(__file__).parent), folder=str(tmp_path), command=command)
    main = subprocess.Popen([sys.executable, "-c", source])
    try:
        escaped = int(told.wait())
        leader = next(iter(marked(str(tmp_path / "sessions"))))
        spawner = parent_of(leader)
    finally:
        main.kill()
        main.wait()
    for pid in (escaped, leader, spawner):
        assert ends_within(pid, 20)


def test_a_new_run_ends_what_a_dead_one_left_in_its_folder(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    mine = {"PATH": os.environ["PATH"], "RELAX_SESSION_IO_DIR": str(sessions / "train-g000000-00")}
    foreign = {**mine, "RELAX_SESSION_IO_DIR": str(tmp_path / "other" / "train-g000000-00")}
    left, other = (subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True) for env in (mine, foreign))

    async def go() -> None:
        async with workshop(tmp_path):
            assert left.wait(20) == -signal.SIGTERM
            assert is_running(other.pid)

    try:
        asyncio.run(go())
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


def test_the_shell_from_which_a_run_is_started_is_spared(tmp_path: Path) -> None:
    """Somebody exported the variables of a failed Session to try its agent by hand, and then starts the run again."""
    source = (
        f"from relaxforge.agents.sweep import end_leftovers; from pathlib import Path; "
        f"print(end_leftovers(Path({str(tmp_path)!r}), 0.1))"
    )
    env = {**os.environ, "RELAX_SESSION_IO_DIR": str(tmp_path / "train-g000000-00")}
    shell = ["bash", "-c", '"$0" -c "$1"; echo still here', sys.executable, source]
    done = subprocess.run(shell, env=env, start_new_session=True, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "still", "here"]


def marked(folder: str) -> set[int]:
    """Pids of processes with a Session folder under ``folder`` in their environment."""
    found = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"RELAX_SESSION_IO_DIR={folder}".encode() in environ.read_bytes():
                found.add(int(environ.parent.name))
        except OSError:
            continue
    return found
