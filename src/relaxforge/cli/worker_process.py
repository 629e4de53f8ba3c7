"""The worker that ``relaxforge up`` runs beside the workspace: started again when it dies, never an orphan."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.sandbox import check_sandbox
from relaxforge.core.errors import ConfigError

AGAIN_S = 5.0
"""Seconds before a worker that died is started again."""

GRACE_S = 20.0
"""Seconds in which a worker ends in order; then it is killed, and its agents with it."""


class WorkerProcess:
    """One `relaxforge worker`. It holds the end of a pipe of ours: when we die, however, it ends itself."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self._arguments = ("worker", *arguments)
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._ending = False

    async def keep(self) -> None:
        """Run it, again and again, until cancelled."""
        reading, writing = os.pipe()
        try:
            while True:
                await self._start(reading)
                assert self._process is not None  # noqa: S101 - just started
                code = await self._process.wait()
                if self._ending:
                    return
                sys.stderr.write(f"the worker ended with status {code} and is started again; see {self._log}\n")
                await asyncio.sleep(AGAIN_S)
        finally:
            os.close(reading)
            os.close(writing)

    async def stop(self, keeping: asyncio.Task[None]) -> None:
        """End it in order, then for certain."""
        self._ending, process = True, self._process
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(process.wait()), GRACE_S)
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _start(self, lifeline: int) -> None:
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:  # noqa: ASYNC230
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "relaxforge.cli.main", *self._arguments, "--lifeline-fd", str(lifeline),
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(lifeline,), start_new_session=True,
            )  # fmt: skip


def sandbox_choice() -> str:
    """``bwrap`` where it works; else a warning and ``none``."""
    try:
        check_sandbox(AgentConfig(agent_command="true", agent_sandbox="bwrap"), os.environ)
    except ConfigError as error:
        sys.stderr.write(
            "warning: agents run without a sandbox here and can read what you can read; run only agents you trust\n"
            f"warning: {error}\n"
        )
        return "none"
    return "bwrap"
