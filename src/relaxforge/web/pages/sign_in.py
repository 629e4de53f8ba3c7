"""Signing in and out, and the password of one's own."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from relaxforge.web import passwords, session
from relaxforge.web.caller import SignedIn
from relaxforge.web.errors import Problem
from relaxforge.web.pages.html import page

router = APIRouter(include_in_schema=False)

HOME = "/environments"


@router.get("/")
async def home() -> Response:
    return RedirectResponse(HOME, 303)


@router.get("/sign-in")
async def sign_in_page(request: Request, next: str = "") -> Response:  # noqa: A002 - the word in the address
    return _form(request, next)


@router.post("/sign-in")
async def sign_in(
    request: Request,
    email: Annotated[str, Form(max_length=320)],
    password: Annotated[str, Form(max_length=1024)],
    next: Annotated[str, Form()] = "",  # noqa: A002
) -> Response:
    try:
        opened = await session.sign_in(request, email, password)
    except Problem as problem:
        return _form(request, next, email=email, error=problem)
    target = "/password" if opened.caller.must_change_password else _own_page(next)
    return _signed_in(request, opened, target)


@router.post("/sign-out")
async def sign_out(request: Request, caller: SignedIn) -> Response:
    await session.sign_out(request, caller)
    response = RedirectResponse("/sign-in", 303)
    session.clear_cookie(response, request.app.state.config)
    return response


@router.get("/password")
async def password_page(request: Request, caller: SignedIn) -> Response:
    return _password_form(request, caller)


@router.post("/password")
async def change_password(
    request: Request,
    caller: SignedIn,
    current: Annotated[str, Form(max_length=1024)],
    new: Annotated[str, Form(max_length=1024)],
) -> Response:
    try:
        opened = await session.change_password(request, caller, current, new)
    except Problem as problem:
        return _password_form(request, caller, problem)
    return _signed_in(request, opened, HOME)


def _signed_in(request: Request, opened: session.Opened, target: str) -> Response:
    response = RedirectResponse(target, 303)
    session.set_cookie(response, request.app.state.config, opened.cookie)
    return response


def _own_page(wanted: str) -> str:
    """Where to go after a sign-in: a page of ours and nothing else."""
    ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\", "/api/", "/sign-"))
    return wanted if ours and wanted.isprintable() else HOME


def _form(request: Request, wanted: str, *, email: str = "", error: Problem | None = None) -> Response:
    return page(
        request,
        "sign_in.html",
        title="Sign in",
        bare=True,
        code=error.status if error else 200,
        next=wanted,
        email=email,
        error=error and error.detail,
    )


def _password_form(request: Request, caller: SignedIn, error: Problem | None = None) -> Response:
    return page(
        request,
        "password.html",
        title="Password",
        bare=caller.must_change_password,
        code=error.status if error else 200,
        least=passwords.LEAST_LENGTH,
        error=error and error.detail,
    )
