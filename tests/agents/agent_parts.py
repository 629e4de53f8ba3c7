"""Parts of the agents tests: a real spawner, and ways to hear from the agents it starts."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.environment import agent_launch
from relaxforge.agents.folder import open_folder
from relaxforge.agents.processes import read_process
from relaxforge.agents.runner import SpawnedAgents
from relaxforge.core.ids import Credential
from relaxforge.core.sessions import AgentExit, AgentLaunch

BASE_URL = "http://127.0.0.1:8080/agentic_api"


@dataclass
class Workshop:
    """A running spawner and a folder of its own for Sessions."""

    agents: SpawnedAgents
    config: AgentConfig
    sessions_dir: Path

    def prepare(self, command: str, name: str = "train-g000000-00", **given: object) -> AgentLaunch:
        return prepare(self.sessions_dir, command, name, self.config, **given)

    async def run(self, command: str, name: str = "train-g000000-00") -> tuple[AgentLaunch, AgentExit]:
        launch = self.prepare(command, name)
        process = await self.agents.launch(launch)
        return launch, await process.wait()


def prepare(
    sessions_dir: Path,
    command: str,
    name: str = "train-g000000-00",
    config: AgentConfig | None = None,
    parent: Mapping[str, str] = os.environ,
    **given: object,
) -> AgentLaunch:
    config = config or AgentConfig()
    settings = AgentConfig(agent_command=command, agent_cwd=config.agent_cwd, agent_env=config.agent_env)
    folder = open_folder(sessions_dir, name, dict(given))
    return agent_launch(
        settings,
        folder,
        Credential(name, "5ec2e7" * 5),
        group_id="train-g000000",
        mode="train",
        base_url=BASE_URL,
        parent=parent,
    )


@asynccontextmanager
async def workshop(folder: Path, **settings: object) -> AsyncIterator[Workshop]:
    config = AgentConfig(**{"agent_cwd": str(folder), "agent_kill_grace": 0.3, **settings})  # type: ignore[arg-type]
    sessions_dir = folder / "sessions"
    agents = SpawnedAgents(config, sessions_dir)
    await agents.start(str(folder / "spawner.log"))
    try:
        yield Workshop(agents, config, sessions_dir)
    finally:
        await agents.close()
    assert (folder / "spawner.log").read_text() == "", "the spawner itself complained"


STUBBORN = """trap '' TERM
echo $$ > told
exec -a kworker sleep 1000
"""
"""A program that does not care about SIGTERM and goes by another name."""


def write_stubborn(folder: Path) -> Told:
    """Put ``stubborn.sh`` into ``folder``; it tells its pid once it is deaf."""
    (folder / "stubborn.sh").write_text(STUBBORN)
    return Told(folder)


class Told:
    """A line that an agent writes to a named pipe: waiting for it is waiting for the agent to be there."""

    def __init__(self, folder: Path, name: str = "told") -> None:
        path = folder / name
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDWR)  # for both ends, so that no open ever blocks

    def wait(self) -> str:
        assert select.select([self._pipe], [], [], 20)[0], "the agent told nothing"
        return os.read(self._pipe, 4096).decode().strip()

    def answer(self) -> None:
        """Let an agent go on that reads from the pipe."""
        os.write(self._pipe, b"go\n")

    async def line(self) -> str:
        return await asyncio.to_thread(self.wait)

    async def pid(self) -> int:
        return int(await self.line())


def parent_of(pid: int) -> int:
    process = read_process(pid)
    assert process is not None, "it has ended"
    return process.parent


def is_running(pid: int) -> bool:
    return read_process(pid) is not None


def ends_within(pid: int, seconds: float) -> bool:
    """Wait for a process that is not ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)
