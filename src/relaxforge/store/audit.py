"""Who did what in an organization; entries are only ever added."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from relaxforge.store.database import Row, Transaction


async def write(tx: Transaction, action: str, subject: str, detail: Mapping[str, Any], remote: str) -> None:
    """Note what the person of ``tx`` did to ``subject``, from which network address; ``detail`` holds no secrets."""
    user_id = tx.scope.user_id if tx.scope else None
    await tx.run("audit.write", user_id=user_id, action=action, subject=subject, detail=dict(detail), remote=remote)


async def list_entries(tx: Transaction, *, before: tuple[datetime, UUID] | None, limit: int) -> list[Row]:
    """``id, created_at, user_id, email, action, subject, detail, remote``, newest first."""
    at, identity = before or (None, None)
    return await tx.all("audit.entries", before_at=at, before_id=identity, limit=limit)
