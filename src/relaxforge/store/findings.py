"""What the attempts of an organization have in common: why they failed, and how far they came. Nothing is invented."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from relaxforge.store.database import Row, Transaction


@dataclass(frozen=True, slots=True)
class Among:
    """Which Trials are looked at; ``None`` does not restrict."""

    environment_id: UUID | None = None
    environment_version_id: UUID | None = None
    evaluation_run_id: UUID | None = None
    training_run_id: UUID | None = None
    since: datetime | None = None


async def capability_gap(tx: Transaction, among: Among) -> list[Row]:
    """How many Trials have each ``failure_category`` that stands in a row, the commonest first."""
    return await tx.all("findings.capability_gap", **asdict(among))


async def outcome_counts(tx: Transaction, among: Among) -> Row:
    """``ended``, ``scored`` and ``categorised`` Trials, so that the counts above can be put in proportion."""
    return await tx.one("findings.outcome_counts", **asdict(among)) or {}


async def stage_names(tx: Transaction, among: Among) -> list[Row]:
    """Every stage that an evaluator reported: ``name``, in how many ``trials``, its ``mean`` there."""
    return await tx.all("findings.stage_names", **asdict(among))


async def partial_rewards(
    tx: Transaction, among: Among, *, before: tuple[datetime, UUID] | None, limit: int
) -> list[Row]:
    """Trials for which a worker wrote stages, newest first."""
    at, identity = before or (None, None)
    return await tx.all("findings.partial_rewards", before_at=at, before_id=identity, limit=limit, **asdict(among))
