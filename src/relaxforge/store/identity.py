"""People, their places in organizations, and what they prove it with: browser sessions and API tokens.

Passwords come hashed (argon2, made by the caller); cookies and tokens are kept as SHA-256 only.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal, get_args
from uuid import UUID

from relaxforge.core.errors import StorageError
from relaxforge.store.database import Row, Transaction
from relaxforge.store.errors import ConflictError, InvalidError, MissingError

Role = Literal["viewer", "member", "owner"]
TOKEN_PREFIX = "rf_"  # noqa: S105 - how a token is recognised, not one
TOKEN_SCOPES = ("read", "export", "run", "publish", "ingest")


def digest(token: str) -> bytes:
    """What is kept of a cookie or token: it has 256 random bits, so that it needs no salt."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


async def find_person(tx: Transaction, email: str) -> Row | None:
    """For signing in, in ``Database.outside()``.

    ``user_id, email, name, password_hash, must_change_password, disabled, memberships [organization_id, name, role]``.
    """
    person = await tx.one("identity.person_by_email", email=email)
    if person is not None:
        person["memberships"] = await tx.all("identity.organizations_of", user_id=person["user_id"])
    return person


async def organizations_of(tx: Transaction, user_id: UUID) -> list[Row]:
    """``organization_id, name, role`` of every organization that a person belongs to, by name."""
    return await tx.all("identity.organizations_of", user_id=user_id)


async def find_session(tx: Transaction, token_hash: bytes, *, idle: timedelta, longest: timedelta) -> Row | None:
    """Whose browser it is, in ``Database.outside()``; ``None`` for an unknown, expired or disabled one.

    Each use moves the end to ``idle`` from now, at most ``longest`` after sign-in. ``user_id, organization_id, role,
    email, name, organization_name, must_change_password, csrf_token, expires_at``.
    """
    return await tx.one("identity.browser_session", token_hash=token_hash, idle=idle, longest=longest)


async def open_session(tx: Transaction, token_hash: bytes, user_id: UUID, csrf_token: str, idle: timedelta) -> None:
    """Remember a browser that signed in to the organization of ``tx``; it lives for ``idle`` unless used."""
    await tx.run("identity.open_session", token_hash=token_hash, user_id=user_id, csrf_token=csrf_token, idle=idle)


async def end_session(tx: Transaction, token_hash: bytes) -> None:
    """Sign one browser out; in any transaction."""
    await tx.run("identity.end_session", token_hash=token_hash)


async def set_password(tx: Transaction, user_id: UUID, password_hash: str) -> None:
    """Replace the own password of the person of ``tx``, and sign out all of their browsers.

    Nobody sets the password of another: that person may belong to other organizations too.
    """
    if tx.scope is None or tx.scope.user_id != user_id:
        raise InvalidError("userId", f"is {user_id}; everybody changes their own password only")
    row = await tx.one("identity.change_own_password", password_hash=password_hash)
    if row is None or not row["changed"]:
        raise MissingError("person", user_id)


async def get_organization(tx: Transaction) -> Row:
    """``id, name, created_at, most_running_jobs`` of the organization of ``tx``."""
    row = await tx.one("identity.organization")
    if row is None:
        raise MissingError("organization", tx.scope.organization_id if tx.scope else "of nobody")
    return row


async def change_organization(tx: Transaction, *, name: str | None = None, most_running_jobs: int | None = None) -> Row:
    """Change name or limit; ``None`` leaves it. As ``get_organization``. Errors: ``InvalidError``."""
    if name is not None and not name.strip():
        raise InvalidError("name", "is empty")
    if most_running_jobs is not None and not 1 <= most_running_jobs <= 1000:
        raise InvalidError("mostRunningJobs", f"must be 1 to 1000, got {most_running_jobs}")
    await tx.one("identity.change_organization", name=name, most_running_jobs=most_running_jobs)
    return await get_organization(tx)


async def list_members(tx: Transaction, *, before: tuple[datetime, UUID] | None, limit: int) -> list[Row]:
    """``id, email, name, role, created_at`` (when they joined)``, disabled``, newest first."""
    at, identity = before or (None, None)
    return await tx.all("identity.members", before_at=at, before_id=identity, limit=limit)


async def add_member(tx: Transaction, *, email: str, name: str, password_hash: str, role: str) -> tuple[UUID, bool]:
    """Add a person to the organization: their id, and whether the account is new.

    Somebody with an account keeps name and password. Errors: ``InvalidError``; ``ConflictError`` for a member.
    """
    email = email.strip().lower()
    if not 3 <= len(email) <= 320 or "@" not in email[1:-1]:
        raise InvalidError("email", f"must be an e-mail address, got {email!r}")
    _known_role(role)
    person = await tx.one("identity.find_or_create_person", email=email, name=name, password_hash=password_hash)
    if person is None:
        raise StorageError(f"the account {email} was just made by somebody else; try again")
    if not await tx.run("identity.join", user_id=person["user_id"], role=role):
        raise ConflictError(f"{email} is a member already; change the role instead")
    return person["user_id"], person["created"]


async def change_role(tx: Transaction, user_id: UUID, role: str) -> None:
    """Errors: ``MissingError``; ``ConflictError`` when nobody would own the organization any more."""
    _known_role(role)
    if role != "owner":
        await _keep_an_owner(tx, user_id)
    if not await tx.run("identity.change_role", user_id=user_id, role=role):
        raise MissingError("member", user_id)


async def remove_member(tx: Transaction, user_id: UUID) -> None:
    """End a membership; its browser sessions and tokens end with it. Errors: as ``change_role``."""
    await _keep_an_owner(tx, user_id)
    if not await tx.run("identity.leave", user_id=user_id):
        raise MissingError("member", user_id)


async def create_token(
    tx: Transaction, *, user_id: UUID, name: str, scopes: Iterable[str], expires_at: datetime
) -> tuple[Row, str]:
    """A new API token of a member: its row (as ``list_tokens``) and the token itself, which nobody can read again.

    Errors: ``InvalidError``.
    """
    wanted = sorted(set(scopes))
    if not name.strip():
        raise InvalidError("name", "is empty")
    if not wanted or not set(wanted) <= set(TOKEN_SCOPES):
        raise InvalidError("scopes", f"must be some of {', '.join(TOKEN_SCOPES)}; got {', '.join(wanted) or 'none'}")
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    given = {"user_id": user_id, "name": name, "scopes": wanted, "expires_at": expires_at}
    rows = await tx.all("identity.create_token", token_hash=digest(token), **given)
    return rows[0], token


async def find_token(tx: Transaction, token_hash: bytes) -> Row | None:
    """Whose token it is, in ``Database.outside()``; ``None`` for an unknown, expired, revoked or disabled one.

    ``id, user_id, organization_id, role, email, name, organization_name, scopes, expires_at``.
    """
    return await tx.one("identity.api_token", token_hash=token_hash)


async def list_tokens(tx: Transaction, *, before: tuple[datetime, UUID] | None, limit: int) -> list[Row]:
    """``id, name, scopes, created_at, expires_at, revoked_at, last_used_at, user_id, email``, newest first."""
    at, identity = before or (None, None)
    return await tx.all("identity.tokens", before_at=at, before_id=identity, limit=limit)


async def revoke_token(tx: Transaction, token_id: UUID) -> None:
    """Errors: ``MissingError``."""
    if not await tx.run("identity.revoke_token", token_id=token_id):
        raise MissingError("token", token_id)


def _known_role(role: str) -> None:
    if role not in get_args(Role):
        raise InvalidError("role", f"must be one of {', '.join(get_args(Role))}; got {role!r}")


async def _keep_an_owner(tx: Transaction, leaving: UUID) -> None:
    """The rows of the owners stay locked, so that two of them cannot leave at once."""
    owners = [row["user_id"] for row in await tx.all("identity.lock_owners")]
    if owners == [leaving]:
        raise ConflictError("the organization would have no owner any more; make somebody else an owner first")
