"""For owners: members, API tokens and the audit log."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Form, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from relaxforge.core.errors import RelaxForgeError
from relaxforge.store import audit, identity
from relaxforge.web.api import people as api
from relaxforge.web.caller import Owner, Snapshot, Tx
from relaxforge.web.pages.html import address, page
from relaxforge.web.pages.mistakes import sentence
from relaxforge.web.parameters import before, cursor_after

router = APIRouter(include_in_schema=False)

PAGE_ROWS = 50
MOST_LISTED = 200
"""Members and tokens on one page; an organization with more uses the API."""

SCOPES = (
    ("read", "look at everything that a viewer sees"),
    ("export", "download rollouts"),
    ("run", "start, reset and cancel evaluation runs"),
    ("publish", "publish environment versions and store secrets"),
    ("ingest", "send the evidence of training runs"),
)


@router.get("/members")
async def members(request: Request, _: Owner, tx: Snapshot) -> Response:
    return await _members(request, tx)


@router.post("/members")
async def add_member(
    request: Request,
    caller: Owner,
    tx: Tx,
    email: Annotated[str, Form()],
    role: Annotated[str, Form()],
    name: Annotated[str, Form()] = "",
) -> Response:
    try:
        asked = api.MemberAsked.model_validate({"email": email, "name": name, "role": role})
        added = await api.add_member(caller, tx, asked)
    except (RelaxForgeError, ValidationError) as error:
        return await _members(request, tx, code=422, error=sentence(error))
    if added.one_time_password is None:
        return await _members(request, tx, notice=f"{email} has an account already and is a member now.")
    return await _members(request, tx, one_time={"email": email, "password": added.one_time_password})


@router.post("/members/{user_id}/role")
async def change_role(request: Request, user_id: UUID, caller: Owner, tx: Tx, role: Annotated[str, Form()]) -> Response:
    try:
        await api.change_role(user_id, caller, tx, api.RoleAsked.model_validate({"role": role}))
    except (RelaxForgeError, ValidationError) as error:
        return await _members(request, tx, code=422, error=sentence(error))
    return RedirectResponse("/members", 303)


@router.post("/members/{user_id}/remove")
async def remove_member(request: Request, user_id: UUID, caller: Owner, tx: Tx) -> Response:
    try:
        await api.remove_member(user_id, caller, tx)
    except RelaxForgeError as error:
        return await _members(request, tx, code=422, error=sentence(error))
    return RedirectResponse("/members", 303)


async def _members(request: Request, tx: Snapshot, *, code: int = 200, **values: Any) -> Response:
    context = {"error": None, "one_time": None, **values}
    rows = await identity.list_members(tx, before=None, limit=MOST_LISTED)
    return page(request, "members.html", title="Members", here="members", code=code, members=rows, **context)


@router.get("/tokens")
async def tokens(request: Request, _: Owner, tx: Snapshot) -> Response:
    return await _tokens(request, tx)


@router.post("/tokens")
async def create_token(
    request: Request,
    caller: Owner,
    tx: Tx,
    name: Annotated[str, Form()],
    days: Annotated[str, Form()],
    scopes: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """The token itself stands in this answer and nowhere else."""
    try:
        asked = api.TokenAsked.model_validate({"name": name, "scopes": scopes or [], "expiresInDays": days})
        made = await api.create_token(caller, tx, asked)
    except (RelaxForgeError, ValidationError) as error:
        return await _tokens(request, tx, code=422, error=sentence(error))
    return await _tokens(request, tx, made=made)


@router.post("/tokens/{token_id}/revoke")
async def revoke_token(token_id: UUID, caller: Owner, tx: Tx) -> Response:
    await api.revoke_token(token_id, caller, tx)
    return RedirectResponse("/tokens", 303)


async def _tokens(request: Request, tx: Snapshot, *, code: int = 200, **values: Any) -> Response:
    context = {"error": None, "made": None, **values}
    rows = await identity.list_tokens(tx, before=None, limit=MOST_LISTED)
    return page(
        request, "tokens.html", title="API tokens", here="tokens", code=code, tokens=rows, scopes=SCOPES, **context
    )


@router.get("/audit-log")
async def audit_log(request: Request, _: Owner, tx: Snapshot, cursor: str | None = None) -> Response:
    found = await audit.list_entries(tx, before=before(cursor), limit=PAGE_ROWS + 1)
    rows = found[:PAGE_ROWS]
    return page(
        request,
        "audit_log.html",
        title="Audit log",
        here="audit-log",
        entries=rows,
        newest="/audit-log" if cursor else None,
        next=address("/audit-log", cursor=cursor_after(rows[-1])) if len(found) > PAGE_ROWS else None,
    )
