"""Members, API tokens, limits and the audit log of an organization."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from relaxforge.store import audit, identity
from relaxforge.web.api.shapes import Asked, Moment, Page, Shown
from relaxforge.web.caller import Owner, Reader, Role, Snapshot, Tx
from relaxforge.web.parameters import Cursor, Limit, before, page
from relaxforge.web.passwords import hash_password, one_time_password

router = APIRouter(tags=["organization"])

TokenScope = Literal["read", "export", "run", "publish", "ingest"]


class OrganizationShown(Shown):
    id: UUID
    name: str
    most_running_jobs: int
    created_at: Moment


class OrganizationAsked(Asked):
    name: str | None = Field(None, min_length=1, max_length=200)
    most_running_jobs: int | None = Field(None, ge=1, le=1000, description="jobs that may run at the same time")


class MemberShown(Shown):
    id: UUID
    email: str
    name: str
    role: Role
    disabled: bool
    created_at: Moment


class MemberAsked(Asked):
    email: str = Field(min_length=3, max_length=320, examples=["ada@example.org"])
    name: str = Field("", max_length=200)
    role: Role


class MemberAdded(Shown):
    """``oneTimePassword`` is shown once; ``None``: the person has an account already."""

    id: UUID
    one_time_password: str | None


class RoleAsked(Asked):
    role: Role


class TokenShown(Shown):
    id: UUID
    name: str
    scopes: list[TokenScope]
    email: str | None = None
    created_at: Moment
    expires_at: Moment
    revoked_at: Moment | None
    last_used_at: Moment | None


class TokenAsked(Asked):
    name: str = Field(min_length=1, max_length=200, examples=["nightly export"])
    scopes: list[TokenScope] = Field(min_length=1, max_length=5, examples=[["read", "export"]])
    expires_in_days: int = Field(90, ge=1, le=366)


class TokenMade(TokenShown):
    """``token`` is shown once."""

    token: str


class AuditEntry(Shown):
    id: UUID
    created_at: Moment
    user_id: UUID | None
    email: str | None
    action: str
    subject: str
    detail: dict[str, Any]
    remote: str


@router.get("/organization", summary="The organization and its limits")
async def get_organization(_: Reader, tx: Snapshot) -> OrganizationShown:
    return OrganizationShown.of(await identity.get_organization(tx))


@router.patch("/organization", summary="Change its name or limits")
async def change_organization(caller: Owner, tx: Tx, asked: OrganizationAsked) -> OrganizationShown:
    row = await identity.change_organization(tx, **asked.model_dump())
    detail = asked.model_dump(exclude_none=True, by_alias=True)
    await audit.write(tx, "organization_changed", str(caller.organization_id), detail, caller.remote)
    return OrganizationShown.of(row)


@router.get("/members", summary="Members, newest first")
async def list_members(_: Reader, tx: Snapshot, cursor: Cursor = None, limit: Limit = 50) -> Page[MemberShown]:
    return Page[MemberShown].of(page(await identity.list_members(tx, before=before(cursor), limit=limit + 1), limit))


@router.post("/members", status_code=201, summary="Add a person")
async def add_member(caller: Owner, tx: Tx, asked: MemberAsked) -> MemberAdded:
    password = one_time_password()
    kept = await asyncio.to_thread(hash_password, password)
    user_id, created = await identity.add_member(
        tx, email=asked.email, name=asked.name, password_hash=kept, role=asked.role
    )
    await audit.write(tx, "member_added", asked.email.strip().lower(), {"role": asked.role}, caller.remote)
    return MemberAdded(id=user_id, one_time_password=password if created else None)


@router.put("/members/{user_id}", status_code=204, summary="Change a role")
async def change_role(user_id: UUID, caller: Owner, tx: Tx, asked: RoleAsked) -> None:
    await identity.change_role(tx, user_id, asked.role)
    await audit.write(tx, "role_changed", str(user_id), {"role": asked.role}, caller.remote)


@router.delete("/members/{user_id}", status_code=204, summary="Remove a member; their sessions and tokens end")
async def remove_member(user_id: UUID, caller: Owner, tx: Tx) -> None:
    await identity.remove_member(tx, user_id)
    await audit.write(tx, "member_removed", str(user_id), {}, caller.remote)


@router.get("/tokens", summary="API tokens, newest first")
async def list_tokens(_: Owner, tx: Snapshot, cursor: Cursor = None, limit: Limit = 50) -> Page[TokenShown]:
    return Page[TokenShown].of(page(await identity.list_tokens(tx, before=before(cursor), limit=limit + 1), limit))


@router.post("/tokens", status_code=201, summary="Make an API token; it is shown once")
async def create_token(caller: Owner, tx: Tx, asked: TokenAsked) -> TokenMade:
    row, token = await identity.create_token(
        tx, user_id=caller.user_id, name=asked.name, scopes=asked.scopes,
        expires_at=datetime.now(UTC) + timedelta(days=asked.expires_in_days),
    )  # fmt: skip
    detail = {"name": asked.name, "scopes": asked.scopes}
    await audit.write(tx, "token_created", str(row["id"]), detail, caller.remote)
    return TokenMade.of({**row, "email": caller.email, "token": token})


@router.delete("/tokens/{token_id}", status_code=204, summary="Revoke an API token")
async def revoke_token(token_id: UUID, caller: Owner, tx: Tx) -> None:
    await identity.revoke_token(tx, token_id)
    await audit.write(tx, "token_revoked", str(token_id), {}, caller.remote)


@router.get("/audit-log", summary="Who did what, newest first")
async def audit_log(_: Owner, tx: Snapshot, cursor: Cursor = None, limit: Limit = 50) -> Page[AuditEntry]:
    return Page[AuditEntry].of(page(await audit.list_entries(tx, before=before(cursor), limit=limit + 1), limit))
