"""A place in a list that is ordered by time and id, as an opaque text that somebody hands back later."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Self
from uuid import UUID

from relaxforge.store.database import Row
from relaxforge.store.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Place:
    """The values of the last row that was shown, so that it does not matter whether that row still exists."""

    at: datetime
    id: UUID
    task: int = 0

    @classmethod
    def after(cls, row: Row) -> Self:
        return cls(row["created_at"], row["id"], row.get("task_index", 0))

    def text(self, order: str | None) -> str:
        """The place as a word for URLs; ``order`` names the list it belongs to."""
        values = [order or "rows", self.at.isoformat(), str(self.id), self.task]
        return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str, order: str | None) -> Self:
        """Errors: ``InvalidError`` for anything that ``text`` did not write for this very list."""
        try:
            padded = text.encode() + b"=" * (-len(text) % 4)
            name, at, identity, task = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
            place = cls(datetime.fromisoformat(at), UUID(identity), int(task))
        except (ValueError, TypeError, AttributeError):
            raise InvalidError("cursor", "is none that an export returned; leave it out to start anew") from None
        if name != (order or "rows") or place.at.tzinfo is None or not 0 <= place.task < 2**31:
            raise InvalidError("cursor", "belongs to another kind of export; leave it out to start anew")
        return place
