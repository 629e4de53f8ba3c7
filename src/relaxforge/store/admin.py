"""What an administrator does to a database: roles, schema, the first organization. The running system never does it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import LiteralString
from uuid import UUID

import psycopg
from psycopg import sql

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.store.migrations import migrations, pending
from relaxforge.store.urls import with_parts
from relaxforge.store.versions import refuse_old_server

APP, WORKER = "relaxforge_app", "relaxforge_worker"
_LOCK = 0x52454C41584647
"""Number of the advisory lock under which one administrator at a time changes a database."""
_APPLIED: LiteralString = """CREATE TABLE IF NOT EXISTS relaxforge.migrations (
  number integer PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());
GRANT SELECT ON relaxforge.migrations TO relaxforge_app, relaxforge_worker"""


@dataclass(frozen=True, slots=True)
class Installed:
    """What ``install`` did. ``app_url`` and ``worker_url`` hold passwords: into a file with mode 0600 with them.

    A URL is ``None`` when the role existed before and keeps its password, which nobody can read.
    """

    app_url: str | None = field(repr=False)
    worker_url: str | None = field(repr=False)
    applied: tuple[str, ...]


def install(admin_url: str, *, app_password: str | None = None, worker_password: str | None = None) -> Installed:
    """Create what is missing of roles and schema in the database of ``admin_url``, and apply pending migrations.

    May run again at any time, also twice at once. Without a password, a new role gets a random one and an existing role
    keeps its own. Each migration is applied wholly or not at all. Errors: ``ConfigError`` for a server that is too old,
    an administrator who may not do it, or migrations that do not fit; ``StorageError`` when the server is not there.
    """
    with administrator(admin_url) as connection:
        refuse_old_server(connection.info.server_version)
        existing = {name for (name,) in connection.execute("SELECT rolname FROM pg_roles")}
        with connection.transaction():
            connection.execute(resources.files("relaxforge.store").joinpath("sql", "roles.sql").read_bytes())
            passwords = {
                role: given or (None if role in existing else secrets.token_urlsafe(24))
                for role, given in ((APP, app_password), (WORKER, worker_password))
            }
            for role, password in passwords.items():
                _set_password(connection, role, password)
        applied = _migrate(connection)
    urls = {role: with_parts(admin_url, user=role, password=given) for role, given in passwords.items() if given}
    return Installed(urls.get(APP), urls.get(WORKER), applied)


def create_first_owner(
    admin_url: str,
    *,
    organization: str,
    email: str,
    password_hash: str,
    name: str = "",
    must_change_password: bool = True,
) -> tuple[UUID, UUID]:
    """A new organization and the person who owns it: their ids, the organization's first.

    A person whose e-mail is known already keeps name and password. ``password_hash`` is argon2's, made by the caller.
    """
    with administrator(admin_url) as connection, connection.transaction():
        _act_as_owner(connection)
        rows = connection.execute(
            "SELECT create_organization(%s, user_id), user_id FROM find_or_create_person(%s, %s, %s, %s)",
            (organization, email, name, password_hash, must_change_password),
        ).fetchall()
        return rows[0]


def reset_password(admin_url: str, *, email: str, password_hash: str) -> None:
    """Give a person a password for once and sign out their browsers. Errors: ``ConfigError`` for an unknown e-mail."""
    with administrator(admin_url) as connection, connection.transaction():
        _act_as_owner(connection)
        if connection.execute("SELECT reset_password(%s, %s)", (email, password_hash)).fetchall() == [(None,)]:
            raise ConfigError(f"nobody has the e-mail address {email}")


def organizations(admin_url: str) -> list[tuple[UUID, str]]:
    """Id and name of every organization, by name."""
    with administrator(admin_url) as connection, connection.transaction():
        _act_as_owner(connection)
        return connection.execute("SELECT id, name FROM all_organizations()").fetchall()


@contextmanager
def administrator(admin_url: str) -> Iterator[psycopg.Connection]:
    """A connection that alone may change the database, until it is closed."""
    try:
        with psycopg.connect(admin_url, autocommit=True, connect_timeout=10) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
            yield connection
    except psycopg.OperationalError as error:
        raise StorageError(f"the database cannot be reached or stopped answering: {error}".strip()) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigError(
            f"the administrator may not do this: {error.diag.message_primary}; connect as a superuser, or as a role "
            "with CREATEROLE that may CREATE in this database"
        ) from error


def _migrate(connection: psycopg.Connection) -> tuple[str, ...]:
    with connection.transaction():
        _act_as_owner(connection)
        connection.execute(_APPLIED)
    rows = connection.execute("SELECT number, sha256 FROM relaxforge.migrations").fetchall()
    missing = pending(dict(rows), migrations())
    for migration in missing:
        with connection.transaction():
            _act_as_owner(connection)
            connection.execute(migration.sql)
            connection.execute(
                "INSERT INTO relaxforge.migrations (number, name, sha256) VALUES (%s, %s, %s)",
                (migration.number, migration.name, migration.sha256),
            )
    return tuple(f"{migration.number:04}_{migration.name}" for migration in missing)


def _act_as_owner(connection: psycopg.Connection) -> None:
    connection.execute("SET LOCAL ROLE relaxforge_owner")
    connection.execute("SET LOCAL search_path = relaxforge")


def _set_password(connection: psycopg.Connection, role: str, password: str | None) -> None:
    """The server sees the verifier only, so that no password reaches its log."""
    if password is not None:
        verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(verifier)))
