"""Who sends a request, and what they may do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Literal, cast
from uuid import UUID

from fastapi import Depends, Request

from relaxforge.store.database import Database, Scope, Transaction
from relaxforge.web.errors import Problem

Role = Literal["viewer", "member", "owner"]
Action = Literal["read", "export", "run", "publish", "ingest", "manage"]

TOKEN_SCOPES: tuple[str, ...] = ("read", "export", "run", "publish", "ingest")
"""What an API token can be allowed; managing people and tokens needs a person."""

_VIEWER = frozenset({"read", "export"})
_MEMBER = _VIEWER | {"run", "publish", "ingest"}
ALLOWED: dict[Role, frozenset[str]] = {"viewer": _VIEWER, "member": _MEMBER, "owner": _MEMBER | {"manage"}}
"""What each role may do; a token never may more than its person."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A person in one organization, behind a browser session or an API token.

    ``scopes`` is ``None`` for a browser; ``csrf_token`` is ``None`` for a token; ``remote`` is the network address.
    """

    user_id: UUID
    email: str
    organization_id: UUID
    organization_name: str
    role: Role
    remote: str
    scopes: frozenset[str] | None = None
    csrf_token: str | None = None
    must_change_password: bool = False

    @property
    def scope(self) -> Scope:
        """Whose rows they may see."""
        return Scope(self.organization_id, self.user_id)

    def may(self, action: Action) -> bool:
        return action in ALLOWED[self.role] and (self.scopes is None or action in self.scopes)


class May:
    """The dependency that every route declares: whoever calls it may do ``action``."""

    def __init__(self, action: Action) -> None:
        self.action = action

    def __call__(self, request: Request) -> Caller:
        caller = caller_of(request)
        if not caller.may(self.action):
            raise Problem(403, "not_allowed", _refusal(caller, self.action))
        return caller


def caller_of(request: Request) -> Caller:
    """The caller that the gate found; no route but the public ones runs without one."""
    caller: Caller | None = getattr(request.state, "caller", None)
    if caller is None:
        raise Problem(401, "not_signed_in", "sign in, or send an API token as 'Authorization: Bearer ...'")
    return caller


def database_of(request: Request) -> Database:
    return cast("Database", request.app.state.database)


async def _transaction(request: Request) -> AsyncIterator[Transaction]:
    async with database_of(request).scope(caller_of(request).scope) as transaction:
        yield transaction


async def _snapshot(request: Request) -> AsyncIterator[Transaction]:
    async with database_of(request).snapshot(caller_of(request).scope) as transaction:
        yield transaction


SignedIn = Annotated[Caller, Depends(caller_of)]
Reader = Annotated[Caller, Depends(May("read"))]
Exporter = Annotated[Caller, Depends(May("export"))]
Runner = Annotated[Caller, Depends(May("run"))]
Publisher = Annotated[Caller, Depends(May("publish"))]
Ingester = Annotated[Caller, Depends(May("ingest"))]
Owner = Annotated[Caller, Depends(May("manage"))]

# Committed when the handler has returned, before the first byte of the answer.
Tx = Annotated[Transaction, Depends(_transaction, scope="function")]
Snapshot = Annotated[Transaction, Depends(_snapshot, scope="function")]
Store = Annotated[Database, Depends(database_of)]


def _refusal(caller: Caller, action: Action) -> str:
    if action not in ALLOWED[caller.role]:
        roles = " or ".join(role for role, actions in ALLOWED.items() if action in actions)
        return f"a {caller.role} may not {action}; ask somebody who is {roles}"
    if action == "manage":
        return "tokens cannot manage people, tokens or limits; sign in as an owner"
    return f"this token lacks the scope {action!r}; make one that has it"
