"""``relaxforge migrate``: an administrator prepares a PostgreSQL for a workspace, or brings it up to date."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relaxforge.cli.flags import parse_flags
from relaxforge.cli.private_files import read_private, write_private
from relaxforge.core.errors import ConfigError
from relaxforge.store import admin
from relaxforge.store.vault import open_vault
from relaxforge.web.passwords import hash_password, one_time_password

APP_URL, WORKER_URL, SECRETS_KEY = "app-url", "worker-url", "secrets-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateArguments:
    admin_url_file: str
    """File with the URL of a superuser, or of a role with CREATEROLE that may CREATE in the database (mode 0600)."""

    credentials_dir: str
    """Folder for app-url and worker-url, the credentials of `serve` and `worker`, and secrets-key (all mode 0600)."""

    organization: str = "Workspace"
    """Name of the first organization, made when the database has none."""

    owner_email: str = "owner@localhost.localdomain"
    """Who owns the first organization; they sign in with this address."""

    new_password_for: str | None = None
    """Give this person (an email address) a new one-time password. None: nobody."""

    new_credentials: bool = False
    """Give the roles relaxforge_app and relaxforge_worker new passwords, which lock out whoever uses the old ones."""


@dataclass(frozen=True, slots=True)
class FirstSignIn:
    """Who can sign in once with this password."""

    email: str
    password: str


def migrate(argv: Sequence[str]) -> int:
    """Roles, schema, credentials, the first organization and its owner. Errors: ``ConfigError``, ``StorageError``."""
    arguments = parse_flags(MigrateArguments, argv, prog="relaxforge migrate")
    url, folder = read_private(arguments.admin_url_file, "--admin-url-file"), Path(arguments.credentials_dir)
    passwords = (one_time_password(), one_time_password()) if arguments.new_credentials else (None, None)
    applied = prepare(url, folder, *passwords)
    sys.stdout.write(f"applied {', '.join(applied) or 'nothing: the schema is up to date'}\ncredentials: {folder}\n")
    owner = first_owner(url, arguments.organization, arguments.owner_email)
    for organization_id, name in admin.organizations(url):
        sys.stdout.write(f"organization {organization_id} {name}\n")
    if owner is not None:
        sys.stdout.write(f"sign in as {owner.email} with the one-time password {owner.password}\n")
    if arguments.new_password_for is not None:
        person = new_password(url, arguments.new_password_for)
        sys.stdout.write(f"one-time password for {person.email}: {person.password}\n")
    return 0


def prepare(
    admin_url: str, folder: Path, app_password: str | None = None, worker_password: str | None = None
) -> tuple[str, ...]:
    """Roles, schema, and the three files in ``folder``; the names of the migrations that were applied."""
    installed = admin.install(admin_url, app_password=app_password, worker_password=worker_password)
    for name, url in ((APP_URL, installed.app_url), (WORKER_URL, installed.worker_url)):
        file = folder / name
        if url is not None:
            file.unlink(missing_ok=True)
            write_private(file, url)
        elif not file.exists():
            raise ConfigError(
                f"{file} is missing, and the role keeps the password that it had; name the folder that has the file, "
                "or give the roles new passwords with --new-credentials"
            )
    open_vault(folder / SECRETS_KEY)
    return installed.applied


def new_password(admin_url: str, email: str) -> FirstSignIn:
    """A password for once in place of one that is lost. Errors: ``ConfigError`` for an unknown address."""
    person = FirstSignIn(email, one_time_password())
    admin.reset_password(admin_url, email=email, password_hash=hash_password(person.password))
    return person


def first_owner(admin_url: str, organization: str, email: str) -> FirstSignIn | None:
    """The owner of the first organization, made now; ``None`` when there is an organization already."""
    if admin.organizations(admin_url):
        return None
    if "@" not in email:
        raise ConfigError(f"--owner-email must be an email address, got {email!r}")
    password = one_time_password()
    admin.create_first_owner(
        admin_url, organization=organization, email=email.lower(), password_hash=hash_password(password)
    )
    return FirstSignIn(email.lower(), password)
