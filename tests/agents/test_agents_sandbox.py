"""Bubblewrap around an agent: what is there, how it ends, and the sentences for machines where it cannot be."""

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from agent_parts import ends_within, is_running, workshop

from relaxforge.agents.check import check_command
from relaxforge.agents.config import AgentConfig
from relaxforge.agents.outcome import judge
from relaxforge.agents.processes import all_processes, marker
from relaxforge.agents.sandbox import Sandbox, check_sandbox, collapsed
from relaxforge.core.errors import AgentError, ConfigError
from relaxforge.core.sessions import AgentLaunch

BWRAP = AgentConfig(agent_sandbox="bwrap")


@pytest.fixture(scope="module")
def walls() -> None:
    try:
        check_sandbox(BWRAP, os.environ)
    except ConfigError as error:
        pytest.skip(str(error))


def confined(shop, command, name="train-g000000-00", socket=None, **more):
    sandbox = Sandbox(dataclasses.replace(shop.config, agent_sandbox="bwrap", **more), socket=socket)
    launch = shop.prepare(command, name)
    return sandbox.around(launch, write=(launch.io_dir,), read=(launch.cwd,), models=True)


def ran(tmp_path, command, **more):
    """The log and the exit of one sandboxed agent."""

    async def go():
        async with workshop(tmp_path) as shop:
            launch = confined(shop, command, **more)
            ended = await (await shop.agents.launch(launch)).wait()
            return launch.log_path.read_text(), ended

    return asyncio.run(asyncio.wait_for(go(), 60))


def test_the_machine_inside_is_small_and_its_own(tmp_path, walls):
    (tmp_path / "data").write_text("mine")
    log, ended = ran(
        tmp_path, 'echo / /* /home/*; echo $HOME $TMPDIR $(hostname) $$; cat data; cat "$RELAX_INPUT_JSON"'
    )
    roots, own, *files = log.splitlines()
    assert ended.code == 0, log
    allowed = {"bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "tmp", "usr"}
    ours = {Path(path).parts[1] for path in (sys.prefix, sys.base_prefix, __file__, tmp_path)}
    assert {path.strip("/") for path in roots.split() if path.count("/") == 1} - {""} <= allowed | ours
    assert own.split()[:3] == ["/home/agent", "/tmp", "agent"]
    assert int(own.split()[3]) < 10
    assert files == ["mine{}"]


@pytest.mark.parametrize(
    ("command", "code"), [("exit 3", 3), ("kill -SEGV $$", 128 + signal.SIGSEGV), ("touch here", 1), ("nosuch", 127)]
)
@pytest.mark.parametrize("socket", [None, "api.sock"])
def test_it_ends_as_its_command_does(tmp_path, walls, command, code, socket):
    if socket is not None:
        (tmp_path / socket).touch()
    _, ended = ran(tmp_path, command, socket=socket and str(tmp_path / socket))
    assert (ended.code, ended.signal) == (code, None)


@pytest.mark.parametrize("socket", [False, True])
def test_nothing_that_it_started_is_left_when_it_has_ended(tmp_path, walls, socket):
    (tmp_path / "api.sock").touch()
    stubborn = "trap '' TERM HUP; (trap '' TERM HUP; setsid sleep 1000 & disown; setsid setsid sleep 1000 &) & exit 0"
    log, ended = ran(tmp_path, stubborn, socket=str(tmp_path / "api.sock") if socket else None)
    assert ended.code == 0, log
    assert _of(tmp_path) == []


def test_an_agent_that_is_asked_to_end_has_its_grace_period_and_then_no_choice(tmp_path, walls):
    (tmp_path / "api.sock").touch()

    async def go(command):
        async with workshop(tmp_path, agent_kill_grace=1.0) as shop:
            launch = confined(shop, command, f"train-g00000{len(command) % 10}-00", socket=str(tmp_path / "api.sock"))
            process = await shop.agents.launch(launch)
            while not launch.log_path.read_text():  # noqa: ASYNC110  (another process: there is no event to wait on)
                await asyncio.sleep(0.01)
            began = time.monotonic()
            await process.kill()
            return launch.log_path.read_text(), time.monotonic() - began

    polite, took = asyncio.run(go("trap 'echo last words; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    assert (polite.endswith("last words\n"), took < 1) == (True, True)
    deaf, took = asyncio.run(go("trap '' TERM; echo up; while :; do sleep 0.05; done"))
    assert (deaf, 1 <= took < 10) == ("up\n", True)
    assert _of(tmp_path) == []


def test_when_the_spawner_is_killed_the_kernel_ends_everything_inside(tmp_path, walls):
    (tmp_path / "api.sock").touch()

    async def go():
        async with workshop(tmp_path) as shop:
            launch = confined(shop, "setsid sleep 1000 & echo up; sleep 1000", socket=str(tmp_path / "api.sock"))
            process = await shop.agents.launch(launch)
            while not launch.log_path.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            inside = _of(tmp_path)
            assert len(inside) >= 4
            os.kill(all_processes()[await process.started()].parent, signal.SIGKILL)
            assert all(ends_within(pid, 10) for pid in inside)
            with pytest.raises(AgentError, match="while the agent ran; everything it started was ended"):
                await process.wait()
            assert not any(map(is_running, inside))

    asyncio.run(go())
    (tmp_path / "spawner.log").write_text("")


def _of(folder: Path) -> list[int]:
    return [pid for pid in all_processes() if (marker(pid) or "").startswith(str(folder))]


def test_the_network_is_open_where_the_operator_says_so(tmp_path, walls):
    devices = {}
    for network in ("gateway", "open"):
        (tmp_path / network).mkdir()
        log, _ = ran(tmp_path / network, "grep -c : /proc/net/dev", agent_sandbox_network=network)
        devices[network] = int(log)
    assert devices == {"gateway": 1, "open": Path("/proc/net/dev").read_text().count(":")}


def test_a_hidden_folder_stays_hidden_below_one_that_is_shown(tmp_path, walls):
    (tmp_path / "runs" / "other").mkdir(parents=True)
    (tmp_path / "runs" / "other" / "secret").touch()

    async def go():
        async with workshop(tmp_path) as shop:
            sandbox = Sandbox(dataclasses.replace(shop.config, agent_sandbox="bwrap"), (str(tmp_path / "runs"),))
            launch = shop.prepare("find runs; ls")
            launch = sandbox.around(launch, read=(launch.cwd,), write=(launch.io_dir,))
            await (await shop.agents.launch(launch)).wait()
            return launch.log_path.read_text().splitlines()

    assert asyncio.run(go()) == ["runs", "runs", "sessions", "spawner.log"]


def test_the_same_walls_stand_without_root(tmp_path, walls, monkeypatch):
    if os.getuid() != 0:
        pytest.skip("we are not root anyway")
    monkeypatch.setattr("relaxforge.agents.sandbox._python", lambda: iter(()))
    sandbox = Sandbox(BWRAP)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chown(folder, 65534, 65534)
        launch = sandbox.around(_plain("id -u; ls /; grep -c : /proc/net/dev", folder), write=(folder,))
        words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *launch.prefix, "/bin/bash", "-c"]
        ran = subprocess.run([*words, launch.command], env=launch.env, capture_output=True, text=True, check=False)
    if "No permissions" in ran.stderr or "not permitted" in ran.stderr:
        pytest.skip(f"no user namespaces for others here: {ran.stderr}")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[0] == "65534"
    assert ran.stdout.split()[-1] == "1"


def _plain(command, folder):
    return AgentLaunch("x", command, str(folder), str(folder), {"PATH": os.environ["PATH"]})


def test_a_machine_without_bubblewrap_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no bwrap on PATH; install it .apt install bubblewrap"):
        check_sandbox(BWRAP, os.environ)


def test_a_machine_where_it_does_not_work_says_why(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(
        ConfigError, match=r"Creating new namespace failed. It needs root or unprivileged user namespaces"
    ):
        check_sandbox(BWRAP, os.environ)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"agent_cwd": "/"}, "--agent-cwd / would show an agent everything below /, secrets included"),
        ({"agent_cwd": str(Path.home())}, "--agent-cwd .* secrets included"),
        ({"agent_sandbox_path": (str(Path.home()),)}, "--agent-sandbox-path .* secrets included"),
        ({"agent_sandbox_path": ("/nowhere/at/all",)}, "--agent-sandbox-path /nowhere/at/all does not exist"),
    ],
)
def test_a_setting_that_would_show_too_much_or_nothing_is_refused(settings, sentence, walls):
    with pytest.raises(ConfigError, match=sentence):
        check_command(dataclasses.replace(BWRAP, agent_command="true", **settings), os.environ)


def test_a_relative_path_is_refused():
    with pytest.raises(ConfigError, match="--agent-sandbox-path data must be absolute"):
        AgentConfig(agent_sandbox_path=("data",))


def test_a_command_that_only_exists_outside_is_found_out_before_anything_starts(tmp_path, walls, monkeypatch):
    tool = tmp_path / "tools" / "mytool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (tmp_path / "agent").mkdir()
    env = {**os.environ, "PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}"}
    config = AgentConfig(agent_command="mytool --fast", agent_cwd=str(tmp_path / "agent"), agent_sandbox="bwrap")
    with pytest.raises(ConfigError, match=f"'mytool' is {tool}, which the sandbox does not show; add"):
        check_command(config, env)
    check_command(dataclasses.replace(config, agent_sandbox_path=(str(tool.parent),)), env)


@pytest.mark.parametrize("socket", [None, "api.sock"])
def test_its_variables_are_obeyed_inside_the_walls_only(tmp_path, walls, socket):
    if socket is not None:
        (tmp_path / socket).touch()
    traces = tmp_path / "traces"
    traces.mkdir()
    for name in ("rc.sh", "bash", "bwrap"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {traces}/{name}\n")
        (tmp_path / name).chmod(0o755)
    given = {"BASH_ENV": "./rc.sh", "PATH": f".:{os.environ['PATH']}", "LD_PRELOAD": "./x.so", "SECRET": "a b\n=$x"}

    async def go():
        async with workshop(tmp_path) as shop:
            launch = confined(shop, 'printf %s "$SECRET"', socket=socket and str(tmp_path / socket))
            launch = dataclasses.replace(launch, env=launch.env | given)
            ended = await (await shop.agents.launch(launch)).wait()
            assert collapsed(launch) == ""
            return launch.log_path.read_text(), ended

    log, ended = asyncio.run(asyncio.wait_for(go(), 60))
    assert ended.code == 0, log
    assert log.endswith("a b\n=$x")
    assert not list(traces.iterdir()), "obeyed outside of the walls"


@pytest.mark.parametrize(
    ("gone", "command", "category"),
    [("/nowhere", "true", "env_setup"), ("", "echo bwrap: no; exit 1", "agent_error")],
)
def test_walls_that_could_not_be_put_up_are_our_fault_and_an_agent_cannot_pretend_it(
    tmp_path, walls, gone, command, category
):
    async def go():
        async with workshop(tmp_path) as shop:
            sandbox, launch = Sandbox(dataclasses.replace(shop.config, agent_sandbox="bwrap")), shop.prepare(command)
            launch = sandbox.around(launch, read=(launch.cwd, *filter(None, [gone])), write=(launch.io_dir,))
            ended = await (await shop.agents.launch(launch)).wait()
            with pytest.raises(AgentError) as caught:
                judge(launch, ended, shop.config, requests=0)
            assert str(caught.value.category) == category
            assert not gone or "no sandbox around the agent: bwrap: Can't find source path" in str(caught.value)

    asyncio.run(go())


def test_without_a_sandbox_a_launch_stays_as_it_is(tmp_path):
    launch = _plain("x", tmp_path)
    assert Sandbox(AgentConfig()).around(launch, models=True) is launch
    assert Sandbox(AgentConfig(), socket="x").origin is None
