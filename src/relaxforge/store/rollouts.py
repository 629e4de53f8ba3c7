"""Rollouts: counted, read one by one, and written into files without holding more than a few of them in memory."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Literal, Protocol, cast
from uuid import UUID

from relaxforge.core.errors import StorageError
from relaxforge.core.evidence import StoredRollout
from relaxforge.store.bodies import Body, Group, read_groups, read_one
from relaxforge.store.database import Database, Row, Scope, Transaction
from relaxforge.store.errors import MissingError
from relaxforge.store.place import Place

MOST_ROWS = 1000
"""Rollouts, or pairs, in one file."""

_IN_MEMORY_BYTES = 8 * 1024 * 1024
_STATEMENT_MS = 30_000
_IDLE_MS = 60_000
_WHOLE_EXPORT_S = 300.0


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rollouts; ``None`` does not restrict. ``since`` is included, ``until`` is not.

    ``kind``: ``all``, ``successful`` (reward 1), ``failed`` (below 1), ``recovery`` (between 0 and 1), ``preference``
    (highest against lowest of a group). A reward of null is in ``all`` only.
    """

    kind: str = "all"
    environment_id: UUID | None = None
    environment_version_id: UUID | None = None
    evaluation_run_id: UUID | None = None
    training_run_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Lines of each kind. ``unscored`` have no reward; those ``out_of_range`` wrote one that is not in [0, 1]."""

    all: int
    successful: int
    failed: int
    recovery: int
    preference: int
    unscored: int
    out_of_range: int


class Shape(Protocol):
    """How rollouts become lines. ``write`` gets one rollout, or the better and the worse one of a pair.

    ``bodies`` says what it needs to see; ``pairs`` whether pairs are wanted, for each environment version or for each
    Task in it. ``None`` from ``write`` leaves the row out.
    """

    @property
    def write(self) -> Any: ...
    @property
    def bodies(self) -> frozenset[Body]: ...
    @property
    def pairs(self) -> Literal["version", "task"] | None: ...


@dataclass(frozen=True, slots=True)
class Spooled:
    """A finished file of lines, at its start; close it when it is sent.

    ``rows`` lines; ``left_out`` more rows cannot be told in this shape; ``total`` rows match the filter.
    ``next_cursor`` continues after the last one, ``None`` when nothing follows.
    """

    file: IO[bytes]
    size: int
    sha256: str
    rows: int
    left_out: int
    total: int
    next_cursor: str | None

    @property
    def truncated(self) -> bool:
        return self.next_cursor is not None


async def counts(tx: Transaction, chosen: Filter) -> Counts:
    """How many rollouts there are of each kind; ``chosen.kind`` does not matter."""
    await _limit(tx)
    given = asdict(chosen)
    rows = await tx.one("rollouts.counts", **given) or {}
    beyond = await tx.one("rollouts.out_of_range", **given) or {}
    _, pairs = await _page(tx, replace(chosen, kind="preference"), "version", None, 0)
    return Counts(**rows, **beyond, preference=pairs)


async def get(tx: Transaction, rollout_id: UUID, bodies: frozenset[Body] = frozenset()) -> StoredRollout:
    """One rollout. Errors: ``MissingError``."""
    rollout = await read_one(tx, rollout_id, bodies)
    if rollout is None:
        raise MissingError("rollout", rollout_id)
    return rollout


async def spool(
    database: Database,
    scope: Scope,
    chosen: Filter,
    shape: Shape,
    *,
    cursor: str | None = None,
    most: int = MOST_ROWS,
) -> Spooled:
    """Write what ``chosen`` names, newest first, into a temporary file, all of it from one moment of the database.

    The transaction is over before the first byte leaves, so that a slow reader holds nothing. Errors: ``InvalidError``
    for a cursor that is not ours, ``StorageError`` when the database is gone or it takes too long.
    """
    place = Place.read(cursor, shape.pairs) if cursor else None
    file = cast("IO[bytes]", SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES))  # noqa: SIM115 - its reader closes it
    try:
        async with asyncio.timeout(_WHOLE_EXPORT_S), database.snapshot(scope) as tx:
            return await _spool(tx, chosen, shape, place, most, file)
    except TimeoutError:
        file.close()
        raise StorageError(f"the export took more than {_WHOLE_EXPORT_S:g} s; choose fewer rollouts") from None
    except BaseException:
        file.close()
        raise


async def _spool(
    tx: Transaction, chosen: Filter, shape: Shape, place: Place | None, most: int, file: IO[bytes]
) -> Spooled:
    await _limit(tx)
    page, total = await _page(tx, chosen, shape.pairs, place, most + 1)
    shown = page[:most]
    digest, rows = hashlib.sha256(), 0

    def write(groups: list[Group]) -> int:
        """In a thread of its own: thousands of steps are encoded meanwhile."""
        lines = [line for line in (shape.write(*group) for group in groups) if line is not None]
        for line in lines:
            digest.update(line)
            file.write(line)
        return len(lines)

    async for groups in read_groups(tx, [row["ids"] for row in shown], shape.bodies):
        rows += await asyncio.to_thread(write, groups)
    size = file.tell()
    file.seek(0)
    following = Place.after(shown[-1]).text(shape.pairs) if len(page) > most else None
    return Spooled(file, size, digest.hexdigest(), rows, len(shown) - rows, total, following)


async def _limit(tx: Transaction) -> None:
    await tx.one("rollouts.limits", statement_ms=_STATEMENT_MS, idle_ms=_IDLE_MS)


async def _page(
    tx: Transaction, chosen: Filter, pairs: Literal["version", "task"] | None, place: Place | None, limit: int
) -> tuple[list[Row], int]:
    """Where each row stands and the ``ids`` of its one or two rollouts; and how many there are in all."""
    given = {**asdict(chosen), "limit": limit}
    start = {"before_at": None, "before_id": None, "before_task": None}
    after = {"before_at": place.at, "before_id": place.id, "before_task": place.task} if place else start
    if pairs is None:
        rows = await tx.all("rollouts.page", **given, **after)
        whole = await tx.one("rollouts.total", **given) or {"total": 0}
        return [{**row, "task_index": 0, "ids": [row["id"]]} for row in rows], whole["total"]
    rows = await tx.all(f"rollouts.{pairs}_pairs", **given, **after)
    first = rows[0] if rows else await tx.one(f"rollouts.{pairs}_pairs", **{**given, "limit": 1}, **start)
    found = [{**row, "ids": [row["better_id"], row["worse_id"]]} for row in rows]
    return found, first["total"] if first else 0
