"""``relaxforge serve``: the API and the pages of a workspace, on a database that `migrate` prepared."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from relaxforge.cli.flags import parse_flags
from relaxforge.cli.private_files import read_private
from relaxforge.observe.log import configure
from relaxforge.store.database import Database
from relaxforge.store.vault import Vault, open_vault
from relaxforge.web.app import create_app
from relaxforge.web.config import WebConfig
from relaxforge.web.server import Server, bind


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeArguments:
    database_url_file: str
    """File with the URL of the database for the role relaxforge_app, as `relaxforge migrate` wrote it (mode 0600)."""

    secrets_key_file: str
    """File with the keys for the secrets of environments, as `relaxforge migrate` wrote it (mode 0600)."""

    events_log: str | None = None
    """File to which events are appended, failures with the id that their answer has. None: warnings and errors are
    shown on stderr in short."""

    artifact_url: str | None = None
    """Folder for trajectories and bundles as an fsspec URL (file:///..., s3://...). None: in the database."""

    web: WebConfig = field(default_factory=WebConfig)


def serve(argv: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM. Errors: ``ConfigError``; ``StorageError`` when the database is not there."""
    arguments = parse_flags(ServeArguments, argv, prog="relaxforge serve")
    url = read_private(arguments.database_url_file, "--database-url-file")
    vault = open_vault(Path(arguments.secrets_key_file))
    configure(Path(arguments.events_log) if arguments.events_log else None)
    warn_about_plain_text(arguments.web)
    asyncio.run(_serve(arguments.web, Database(url, artifact_url=arguments.artifact_url), vault))
    return 0


async def _serve(config: WebConfig, database: Database, vault: Vault) -> None:
    server = Server(create_app(config, database, vault), config, bind(config))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    await server.run_until_stopped(partial(_say, server.origin))


def _say(origin: str) -> None:
    sys.stdout.write(f"workspace: {origin}  (Ctrl-C ends it)\n")
    sys.stdout.flush()


def warn_about_plain_text(config: WebConfig) -> None:
    """Say loudly that passwords and evidence would travel unprotected."""
    if not config.loopback and not config.encrypted:
        sys.stderr.write(
            f"WARNING: --host {config.host} can be reached from other machines without encryption: passwords and\n"
            "WARNING: private evidence would be readable on the way, and browsers refuse to sign in. Put a proxy with\n"
            "WARNING: a certificate in front, and name it: --public-url https://workspace.example.org\n"
        )
