"""Whether this connection and this database keep organizations apart; if not, nothing is served."""

from __future__ import annotations

from typing import Literal

from relaxforge.core.errors import ConfigError
from relaxforge.store.database import Transaction
from relaxforge.store.migrations import migrations, pending
from relaxforge.store.versions import refuse_old_server


async def check(tx: Transaction, role: Literal["app", "worker"] = "app") -> None:
    """Refuse a database, or a login, under which rows could leak. ``tx`` is any transaction, also of no organization.

    Errors: ``ConfigError`` that says what is wrong and what to do.
    """
    refuse_old_server(tx.connection.info.server_version)
    await _check_login(tx, role)
    await _check_migrations(tx)
    await _check_tables(tx)


async def _check_login(tx: Transaction, role: str) -> None:
    advice = f"connect as relaxforge_{role}, which `relaxforge migrate` creates"
    for row in await tx.all("guard.mighty_roles"):
        member = "" if row["rolname"] == row["login"] else f" is a member of {row['rolname']}, which"
        power = "is a superuser" if row["rolsuper"] else "gets past row-level security"
        raise ConfigError(
            f"the database login {row['login']}{member} {power}, so that it sees every organization; {advice}"
        )
    for row in await tx.all("guard.owned_tables"):
        raise ConfigError(
            f"the database login {row['login']} owns the table {row['name']}, and could change it; {advice}"
        )
    rows = await tx.all("guard.login", role=f"relaxforge_{role}")
    for row in rows:
        if not row["fits"]:
            raise ConfigError(
                f"the database login {row['login']} is not relaxforge_{role}, nor a member of it; {advice}"
            )
        if role == "worker" and row["reads_people"]:
            raise ConfigError(f"the database login {row['login']} of the worker may read people and tokens; {advice}")


async def _check_migrations(tx: Transaction) -> None:
    if not (await tx.all("guard.has_migrations"))[0]["present"]:
        raise ConfigError("the database has no RelaxForge schema; run `relaxforge migrate`")
    applied = {row["number"]: row["sha256"] for row in await tx.all("guard.migrations")}
    if missing := pending(applied, migrations()):
        names = ", ".join(f"{migration.number:04}_{migration.name}" for migration in missing)
        raise ConfigError(f"the database lacks migrations ({names}); run `relaxforge migrate`")


async def _check_tables(tx: Transaction) -> None:
    for row in await tx.all("guard.open_tables"):
        raise ConfigError(
            f"the table {row['name']} {row['fault']}, so that organizations are not kept apart; undo what was changed "
            "by hand, or give a new table its policy in the migration that makes it"
        )
