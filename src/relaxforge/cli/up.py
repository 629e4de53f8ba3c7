"""``relaxforge up``: a whole workspace on one machine: PostgreSQL, the pages and the API, and one worker."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from relaxforge.cli.flags import parse_flags
from relaxforge.cli.migrate import APP_URL, SECRETS_KEY, WORKER_URL, FirstSignIn, first_owner, new_password, prepare
from relaxforge.cli.private_files import read_private, write_private
from relaxforge.cli.serve import warn_about_plain_text
from relaxforge.cli.worker_process import WorkerProcess, sandbox_choice
from relaxforge.core.errors import ConfigError
from relaxforge.observe.log import configure
from relaxforge.store import admin, identity
from relaxforge.store.database import Database
from relaxforge.store.embedded import EmbeddedPostgres
from relaxforge.store.vault import open_vault
from relaxforge.web.app import create_app
from relaxforge.web.config import WebConfig
from relaxforge.web.server import Server, bind

FIRST_SIGN_IN = "first-sign-in"

WORKER_GRACE_S = 10.0
"""Seconds that attempts under way may go on after Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpArguments:
    state_dir: str | None = None
    """Folder for the database, the credentials and the worker's files. None: /var/lib/relaxforge for root, else
    $XDG_DATA_HOME/relaxforge (~/.local/share/relaxforge)."""

    database_url_file: str | None = None
    """File (mode 0600) with the administrator's URL of a PostgreSQL of your own. None: one is started in the state
    folder."""

    database_url: str | None = None
    """The same as an argument, for URLs without a password. None: see --database-url-file."""

    organization: str = "Workspace"
    """Name of the first organization, made when the database has none."""

    owner_email: str = "owner@localhost.localdomain"
    """Who owns the first organization; they sign in with this address."""

    new_password_for: str | None = None
    """Give this person (an email address) a new one-time password in place of a lost one. None: nobody."""

    worker: bool = True
    """Run a worker here. With --no-worker, start workers yourself (`relaxforge worker`)."""

    allow_model: tuple[str, ...] = ("tiny", "smollm2")
    """Models that the worker may load, by name or folder."""

    allow_upstream: tuple[str, ...] = ()
    """Base URLs of hosted models that the worker may call. Empty: none."""

    artifact_url: str | None = None
    """Folder for trajectories and bundles as an fsspec URL (file:///..., s3://...). None: in the database."""

    web: WebConfig = field(default_factory=WebConfig)


def up(argv: Sequence[str]) -> int:
    """Run until SIGINT or SIGTERM, then end everything in order.

    Errors: ``ConfigError``, also when the folder is in use; ``StorageError`` when the database does not start.
    """
    arguments = parse_flags(UpArguments, argv, prog="relaxforge up")
    folder = Path(arguments.state_dir) if arguments.state_dir else _default_folder()
    warn_about_plain_text(arguments.web)
    with _alone(folder) as lock, _prepared(arguments, folder) as admin_url:
        configure(folder / "events.log")
        owner = first_owner(admin_url, arguments.organization, arguments.owner_email)
        if owner is not None:
            _remember(folder, owner)
        if arguments.new_password_for is not None:
            _remember(folder, new_password(admin_url, arguments.new_password_for))
        organization_id = admin.organizations(admin_url)[0][0]
        asyncio.run(_run(arguments, folder, lock, str(organization_id)))
    return 0


@contextmanager
def _prepared(arguments: UpArguments, folder: Path) -> Iterator[str]:
    """The administrator's URL of a running, migrated database."""
    if (url := _own_database(arguments)) is not None:
        prepare(url, folder)
        yield url
        return
    with EmbeddedPostgres(folder / "postgres") as server:
        prepare(server.admin_url, folder, server.app_password, server.worker_password)
        with server.kept_running():
            yield server.admin_url


def _own_database(arguments: UpArguments) -> str | None:
    if arguments.database_url_file is not None:
        return read_private(arguments.database_url_file, "--database-url-file")
    url = arguments.database_url
    if url is not None and (":" in url.partition("://")[2].rpartition("@")[0] or "password" in url):
        raise ConfigError(
            "--database-url holds a password, which every program on this machine could read; write the URL into a "
            "file with mode 0600 and use --database-url-file"
        )
    return url


async def _run(arguments: UpArguments, folder: Path, lock: IO[str], organization_id: str) -> None:
    url = read_private(folder / APP_URL, "state folder")
    await _forget_used_password(folder, url)
    database = Database(url, artifact_url=arguments.artifact_url)
    vault = open_vault(folder / SECRETS_KEY)
    server = Server(create_app(arguments.web, database, vault), arguments.web, bind(arguments.web))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stop, server)
    _note(lock, f"process {os.getpid()}, {server.origin}")
    worker = None
    if arguments.worker:
        worker = WorkerProcess(_worker_flags(arguments, folder, organization_id), folder / "worker.log")
    keeping = asyncio.create_task(worker.keep()) if worker else None
    try:
        await server.run_until_stopped(partial(_say, folder, server.origin))
    finally:
        if worker is not None and keeping is not None:
            await worker.stop(keeping)


def _worker_flags(arguments: UpArguments, folder: Path, organization_id: str) -> list[str]:
    flags = {
        "--database-url-file": [str(folder / WORKER_URL)],
        "--secrets-key-file": [str(folder / SECRETS_KEY)],
        "--organization": [organization_id],
        "--agent-sandbox": [sandbox_choice()],
        "--work-dir": [str(folder / "jobs")],
        "--grace": [str(WORKER_GRACE_S)],
        "--allow-model": list(arguments.allow_model),
        "--allow-upstream": list(arguments.allow_upstream),
        "--artifact-url": [arguments.artifact_url] if arguments.artifact_url else [],
    }
    return [word for flag, values in flags.items() if values for word in (flag, *values)]


def _stop(server: Server) -> None:
    """In order the first time; the second Ctrl-C does what it does everywhere."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().remove_signal_handler(number)
    sys.stdout.write("\nending: no new requests, then the worker, then the database\n")
    server.stop()


@contextmanager
def _alone(folder: Path) -> Iterator[IO[str]]:
    """Hold the state folder. Errors: ``ConfigError`` naming the process and address of whoever holds it already."""
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        file = open(folder / "up.lock", "a+", encoding="utf-8")  # noqa: SIM115 - held as long as the lock
    except OSError as error:
        raise ConfigError(f"--state-dir {folder} cannot be used: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().strip() or "just starting"
            raise ConfigError(
                f"another `relaxforge up` runs on {folder} ({who}); use it, end it, or name another --state-dir"
            ) from None
        yield file


def _note(lock: IO[str], text: str) -> None:
    lock.truncate(0)
    lock.write(text + "\n")
    lock.flush()


def _remember(folder: Path, person: FirstSignIn) -> None:
    file = folder / FIRST_SIGN_IN
    file.unlink(missing_ok=True)
    write_private(file, f"{person.email} {person.password}")


async def _forget_used_password(folder: Path, url: str) -> None:
    file = folder / FIRST_SIGN_IN
    if not file.exists():
        return
    async with Database(url, most=1) as database, database.outside() as tx:
        person = await identity.find_person(tx, read_private(file, "state folder").partition(" ")[0])
    if person is None or not person["must_change_password"]:
        file.unlink()


def _say(folder: Path, origin: str) -> None:
    sys.stdout.write(f"workspace: {origin}  (Ctrl-C ends it)\n")
    first = folder / FIRST_SIGN_IN
    if first.exists():
        email, _, password = read_private(first, "state folder").partition(" ")
        sys.stdout.write(f"sign in as {email} with the one-time password {password}\n")
        sys.stdout.write(f"(it works once, until a password is chosen; kept in {first})\n")
    sys.stdout.write(f"files: {folder}\n")
    sys.stdout.flush()


def _default_folder() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/relaxforge")  # PostgreSQL runs as another user there, who cannot enter root's home.
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "relaxforge"
