"""What the selections of several pages offer."""

from __future__ import annotations

from relaxforge.store import environments
from relaxforge.store.database import Transaction

MOST = 200


async def environment_choices(tx: Transaction) -> list[tuple[str, str]]:
    """Ids and names of the newest environments."""
    rows = await environments.list_environments(tx, before=None, limit=MOST)
    return [(str(row["id"]), row["name"]) for row in rows]
