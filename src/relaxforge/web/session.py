"""Signing in and out: browser cookies, API tokens, and how often one may try."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from limits import RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter
from starlette.requests import Request
from starlette.responses import Response

from relaxforge.observe.log import get_logger
from relaxforge.store import audit, identity
from relaxforge.store.database import Database, Row, Scope
from relaxforge.store.identity import digest
from relaxforge.web import passwords
from relaxforge.web.caller import Caller
from relaxforge.web.config import WebConfig
from relaxforge.web.errors import Problem

WINDOW_S = 15 * 60
REFUSAL_S = 0.4
"""A sign-in that fails takes so long at least, so that no clock tells which accounts exist."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class Opened:
    """A browser session that was just opened: the value of its cookie, and whose it is."""

    cookie: str
    caller: Caller


class Attempts:
    """How often somebody may try to sign in: per account and per network address."""

    def __init__(self, config: WebConfig) -> None:
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._account = RateLimitItemPerSecond(config.sign_ins_per_account, WINDOW_S)
        self._address = RateLimitItemPerSecond(config.sign_ins_per_address, WINDOW_S)

    async def count(self, email: str, remote: str) -> None:
        """Errors: ``Problem`` 429 when there were too many; the right password does not help then."""
        allowed = await self._limiter.hit(self._address, "address", remote)
        if not await self._limiter.hit(self._account, "account", email) or not allowed:
            raise Problem(
                429,
                "too_many_sign_ins",
                f"too many attempts to sign in; wait up to {WINDOW_S // 60} minutes",
                headers={"Retry-After": str(WINDOW_S)},
            )


def remote_of(request: Request) -> str:
    return request.client.host if request.client else ""


def cookie_name(config: WebConfig) -> str:
    return "__Host-relaxforge" if config.secure_cookies else "relaxforge"


def set_cookie(response: Response, config: WebConfig, value: str) -> None:
    response.set_cookie(
        cookie_name(config),
        value,
        max_age=int(config.session_absolute_s),
        secure=config.secure_cookies,
        httponly=True,
        samesite="lax",
        path="/",
    )


def clear_cookie(response: Response, config: WebConfig) -> None:
    response.delete_cookie(cookie_name(config), secure=config.secure_cookies, httponly=True, samesite="lax", path="/")


async def caller_behind(request: Request, database: Database, config: WebConfig) -> Caller | None:
    """The caller that a bearer token or a cookie stands for; ``None`` when there is none, or it has expired."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    cookie = request.cookies.get(cookie_name(config))
    if scheme.lower() == "bearer":
        async with database.outside() as tx:
            row = await identity.find_token(tx, digest(token.strip()))
    elif cookie is not None:
        async with database.outside() as tx:
            row = await identity.find_session(tx, digest(cookie), idle=_idle(config), longest=_longest(config))
    else:
        return None
    return _caller(row, remote_of(request)) if row is not None else None


async def sign_in(request: Request, email: str, password: str, organization_id: UUID | None = None) -> Opened:
    """Open a session for a person; the one that this browser had before ends.

    Errors: ``Problem`` 401 for a wrong password, an unknown or disabled account and a foreign organization alike.
    """
    app, remote, start = request.app.state, remote_of(request), time.monotonic()
    email = email.strip().lower()
    await app.attempts.count(email, remote)
    async with app.database.outside() as tx:
        person = await identity.find_person(tx, email)
    kept = person["password_hash"] if person and not person["disabled"] else None
    right = await passwords.matches(password, kept)
    seat = _seat(person["memberships"], organization_id) if person else None
    if not right or person is None or seat is None:
        await _note_failure(app.database, person, seat, remote)
        await asyncio.sleep(max(0.0, start + REFUSAL_S - time.monotonic()))
        raise Problem(401, "wrong_credentials", "the email address or the password is wrong")
    old = request.cookies.get(cookie_name(app.config))
    return await _open(app.database, app.config, person, seat, remote, old=old)


async def sign_out(request: Request, caller: Caller) -> None:
    """End the session of this browser; nothing happens to tokens."""
    app = request.app.state
    if (cookie := request.cookies.get(cookie_name(app.config))) is not None:
        async with app.database.scope(caller.scope) as tx:
            await identity.end_session(tx, digest(cookie))
            await audit.write(tx, "signed_out", caller.email, {}, caller.remote)


async def change_password(request: Request, caller: Caller, current: str, new: str) -> Opened:
    """Replace a password; every other session of the person ends, and this browser gets a new one.

    Errors: ``Problem`` 403 for a wrong current password, 422 for a new one that is too short.
    """
    app = request.app.state
    await app.attempts.count(caller.email, caller.remote)
    async with app.database.outside() as tx:
        person = await identity.find_person(tx, caller.email)
    if person is None or not await passwords.matches(current, person["password_hash"]):
        raise Problem(403, "wrong_credentials", "the current password is wrong")
    if not passwords.LEAST_LENGTH <= len(new) <= passwords.MOST_LENGTH or new == current:
        message = (
            f"the new password needs at least {passwords.LEAST_LENGTH} characters and must differ from the old one"
        )
        raise Problem(422, "invalid", message, errors=[{"path": "body.newPassword", "message": message}])
    kept = await asyncio.to_thread(passwords.hash_password, new)
    async with app.database.scope(caller.scope) as tx:
        await identity.set_password(tx, caller.user_id, kept)
        await audit.write(tx, "password_changed", caller.email, {}, caller.remote)
    seat = _seat(person["memberships"], caller.organization_id)
    if seat is None:
        raise Problem(403, "not_allowed", "you are not a member of this organization any more")
    return await _open(app.database, app.config, {**person, "must_change_password": False}, seat, caller.remote)


async def _open(
    database: Database, config: WebConfig, person: Row, seat: Row, remote: str, *, old: str | None = None
) -> Opened:
    cookie, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    caller = _caller({**person, **seat, "organization_name": seat["name"], "csrf_token": csrf}, remote)
    async with database.scope(caller.scope) as tx:
        if old is not None:
            await identity.end_session(tx, digest(old))
        await identity.open_session(tx, digest(cookie), caller.user_id, csrf, _idle(config))
        await audit.write(tx, "signed_in", caller.email, {}, remote)
    return Opened(cookie, caller)


def _seat(memberships: list[Row], organization_id: UUID | None) -> Row | None:
    """The membership to work under: the one asked for, else the first."""
    for membership in memberships:
        if organization_id in (None, membership["organization_id"]):
            return membership
    return None


async def _note_failure(database: Database, person: Row | None, seat: Row | None, remote: str) -> None:
    if person is None or seat is None:
        log.warning("sign_in_failed", remote=remote)  # No organization's audit log is the place for it.
        return
    async with database.scope(Scope(seat["organization_id"], person["user_id"])) as tx:
        await audit.write(tx, "sign_in_failed", person["email"], {}, remote)


def _caller(row: Row, remote: str) -> Caller:
    """From a row of a browser session, or of a token, which has scopes instead of a CSRF token."""
    scopes = row.get("scopes")
    return Caller(
        user_id=row["user_id"],
        email=row["email"],
        organization_id=row["organization_id"],
        organization_name=row["organization_name"],
        role=row["role"],
        remote=remote,
        scopes=frozenset(scopes) if scopes is not None else None,
        csrf_token=row.get("csrf_token"),
        must_change_password=row.get("must_change_password", False),
    )


def _idle(config: WebConfig) -> timedelta:
    return timedelta(seconds=min(config.session_idle_s, config.session_absolute_s))


def _longest(config: WebConfig) -> timedelta:
    return timedelta(seconds=config.session_absolute_s)
