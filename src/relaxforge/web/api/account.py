"""Signing in and out, and who one is."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import Field

from relaxforge.web import session
from relaxforge.web.api.shapes import Asked, Shown
from relaxforge.web.caller import ALLOWED, Caller, SignedIn
from relaxforge.web.errors import Problem

router = APIRouter(tags=["account"])


class Credentials(Asked):
    email: str = Field(max_length=320, examples=["ada@example.org"])
    password: str = Field(max_length=1024, examples=["correct horse battery staple"])
    organization_id: UUID | None = Field(None, description="for people in several organizations; else the first")


class PasswordChange(Asked):
    current_password: str = Field(max_length=1024)
    new_password: str = Field(max_length=1024, description="at least 12 characters")


class Me(Shown):
    """The caller. ``csrfToken`` goes into the header X-CSRF-Token of every request that changes something."""

    user_id: UUID
    email: str
    organization_id: UUID
    organization_name: str
    role: str = Field(examples=["member"])
    actions: list[str] = Field(examples=[["export", "read"]])
    must_change_password: bool
    csrf_token: str | None


def _me(caller: Caller) -> Me:
    actions = sorted(action for action in ALLOWED[caller.role] if caller.scopes is None or action in caller.scopes)
    return Me.of({**{name: getattr(caller, name) for name in Me.model_fields if name != "actions"}, "actions": actions})


@router.post("/sign-in", summary="Sign in with a password; the answer sets the cookie")
async def sign_in(request: Request, response: Response, asked: Credentials) -> Me:
    opened = await session.sign_in(request, asked.email, asked.password, asked.organization_id)
    session.set_cookie(response, request.app.state.config, opened.cookie)
    return _me(opened.caller)


@router.post("/sign-out", status_code=204, summary="End the session of this browser")
async def sign_out(request: Request, response: Response, caller: SignedIn) -> None:
    await session.sign_out(request, caller)
    session.clear_cookie(response, request.app.state.config)


@router.get("/me", summary="Who is calling, and what they may do")
async def me(caller: SignedIn) -> Me:
    return _me(caller)


@router.post("/password", summary="Replace the password; every other session of the person ends")
async def change_password(request: Request, response: Response, caller: SignedIn, asked: PasswordChange) -> Me:
    if caller.scopes is not None:
        raise Problem(403, "not_allowed", "a token cannot change a password; sign in with a browser")
    opened = await session.change_password(request, caller, asked.current_password, asked.new_password)
    session.set_cookie(response, request.app.state.config, opened.cookie)
    return _me(opened.caller)
