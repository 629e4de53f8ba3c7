"""``relaxforge worker``: runs evaluation jobs of a workspace on this machine."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from uuid import UUID

import uvloop

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.sandbox import check_sandbox
from relaxforge.cli.flags import parse_flags
from relaxforge.cli.private_files import read_private
from relaxforge.core.errors import ConfigError
from relaxforge.engine.config import EngineConfig
from relaxforge.observe.log import configure, get_logger
from relaxforge.runs.worker import Worker
from relaxforge.runs.worker_config import WorkerConfig
from relaxforge.store.vault import open_vault

log = get_logger()

_PR_SET_DUMPABLE = 4
_URL_VARIABLES = ("DATABASE_URL", "RELAXFORGE_DATABASE_URL", "PGPASSWORD")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerArguments:
    database_url_file: str | None = None
    """File (mode 0600) with the URL of the database as relaxforge_worker; `relaxforge migrate` writes it. None: see
    --database-url-fd."""

    database_url_fd: int | None = None
    """Descriptor, open for reading, with the same; no file that an agent could find. None: see --database-url-file."""

    organization: tuple[str, ...] = ()
    """Organizations (ids) whose jobs to run. More than one needs --agent-sandbox bwrap."""

    all_organizations: bool = False
    """Run the jobs of every organization. Needs --agent-sandbox bwrap."""

    secrets_key_file: str | None = None
    """File (mode 0600) with the keys of environment secrets. None: environments that have secrets fail here."""

    artifact_url: str | None = None
    """Folder for artifacts as an fsspec URL, the same as that of `serve`. None: in the database."""

    agent_sandbox: Literal["none", "bwrap"] = "bwrap"
    """What is around agents, worlds and evaluators. `none`: nothing, and they can read what the user of the worker can
    read, its credential file included."""

    agent_sandbox_path: tuple[str, ...] = ()
    """More paths that sandboxed agents may read; absolute."""

    agent_sandbox_network: Literal["gateway", "open"] = "gateway"
    """What sandboxed agents reach, as in `relaxforge train`."""

    engine_device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the local engine computes."""

    log_level: Literal["debug", "info", "warning"] = "info"
    """Least level of what is logged to standard error."""

    lifeline_fd: int | None = None
    """Descriptor whose end of file ends the worker at once; for a program that starts it. None: there is none."""

    worker: WorkerConfig = field(default_factory=WorkerConfig)


def worker(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT: Trials under way finish within --grace; a second signal ends them at once.

    Errors: ``ConfigError`` for credentials that others can read, and for organizations without a sandbox.
    """
    arguments = parse_flags(WorkerArguments, argv, prog="relaxforge worker")
    protect_memory()
    configure(None, arguments.log_level)
    given = _worker(arguments, _url(arguments))
    if arguments.agent_sandbox == "none":
        log.warning("agents_unconfined", flag="--agent-sandbox none")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(given, arguments.lifeline_fd))
    return 0


def protect_memory() -> None:
    """Nobody else of this user may read the memory, the descriptors or the environment of this process from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise ConfigError(f"the worker cannot protect its memory: {os.strerror(ctypes.get_errno())}")


def _worker(arguments: WorkerArguments, url: str) -> Worker:
    agents = AgentConfig(
        agent_command="true",  # that of each environment takes its place
        agent_sandbox=arguments.agent_sandbox,
        agent_sandbox_path=arguments.agent_sandbox_path,
        agent_sandbox_network=arguments.agent_sandbox_network,
    )
    check_sandbox(agents, os.environ)
    return Worker(
        url, arguments.worker, agents, EngineConfig(engine_device=arguments.engine_device),
        organizations=_organizations(arguments),
        vault=open_vault(Path(arguments.secrets_key_file)) if arguments.secrets_key_file else None,
        artifact_url=arguments.artifact_url,
    )  # fmt: skip


def _organizations(arguments: WorkerArguments) -> list[UUID]:
    if bool(arguments.organization) == arguments.all_organizations:
        raise ConfigError("say whose jobs to run: --organization ID, or --all-organizations")
    try:
        return [UUID(text) for text in arguments.organization]
    except ValueError:
        raise ConfigError(f"--organization takes ids, got {' '.join(arguments.organization)}") from None


def _url(arguments: WorkerArguments) -> str:
    for name in _URL_VARIABLES:
        if name in os.environ:
            raise ConfigError(
                f"{name} is set, and every program of this user can read the environment; unset it, and use "
                "--database-url-file or --database-url-fd"
            )
    if (arguments.database_url_file is None) == (arguments.database_url_fd is None):
        raise ConfigError("give the database with --database-url-file or with --database-url-fd")
    if arguments.database_url_file is not None:
        return read_private(arguments.database_url_file, "--database-url-file")
    try:
        with os.fdopen(arguments.database_url_fd or 0, encoding="utf-8") as file:
            url = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--database-url-fd {arguments.database_url_fd} cannot be read: {error}") from None
    if not url:
        raise ConfigError(f"--database-url-fd {arguments.database_url_fd} is empty")
    return url


async def _run(worker: Worker, lifeline: int | None) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, worker)
    if lifeline is not None:
        loop.add_reader(lifeline, _end, worker, lifeline)
    await worker.run()


def _stop(worker: Worker) -> None:
    sys.stderr.write("ending: Trials under way may finish; a second signal ends them at once\n")
    worker.stop()


def _end(worker: Worker, lifeline: int) -> None:
    asyncio.get_running_loop().remove_reader(lifeline)
    worker.stop()
    worker.stop()
