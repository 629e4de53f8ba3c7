"""The files of a Trial, fetched and read for a page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from relaxforge.store import artifacts
from relaxforge.store.database import Row, Transaction
from relaxforge.store.errors import MissingError
from relaxforge.web.pages.forest import read_session
from relaxforge.web.pages.trajectory import Trajectory, read_trajectory

T = TypeVar("T")

LARGE = 256 * 1024
"""Bytes from which reading a file leaves the event loop to others."""


async def trajectory_of(tx: Transaction, trial: Row) -> Trajectory:
    """An attempt that has not ended, or ended without one, has an empty trajectory."""
    if trial["trajectory_artifact_id"] is None:
        return Trajectory()
    try:
        return await _read(tx, trial["trajectory_artifact_id"], read_trajectory)
    except MissingError as error:
        return Trajectory(damaged=str(error))


async def session_of(tx: Transaction, trial: Row) -> dict[str, Any]:
    """The dump line. Errors: ``ValueError`` with a sentence for people when there is none or it is damaged."""
    if trial["session_artifact_id"] is None:
        ended = trial["ended_at"] is not None
        raise ValueError("No session was stored." if ended else "The session is stored when the Trial ends.")
    try:
        return await _read(tx, trial["session_artifact_id"], read_session)
    except (MissingError, ValueError) as error:
        raise ValueError(f"The session artifact cannot be read: {error}") from error


async def _read(tx: Transaction, artifact_id: UUID, reader: Callable[[bytes], T]) -> T:
    body = (await artifacts.get(tx, artifact_id)).body
    return await asyncio.to_thread(reader, body) if len(body) > LARGE else reader(body)
