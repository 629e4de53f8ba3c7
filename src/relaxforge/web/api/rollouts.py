"""Rollouts: counted, one by one, and as files that are complete or not there at all."""

from __future__ import annotations

import asyncio
import gzip
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any, cast
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from relaxforge.export.kinds import DEFAULT_FORMAT, FORMATS, KINDS, Choice, choose
from relaxforge.export.lines import single_rollout
from relaxforge.export.schema import features
from relaxforge.store import audit, rollouts
from relaxforge.store.rollouts import MOST_ROWS, Filter, Spooled
from relaxforge.web.api.artifacts import attachment
from relaxforge.web.api.shapes import Shown
from relaxforge.web.caller import Exporter, Reader, Snapshot, Store
from relaxforge.web.parameters import Cursor, EnvironmentId, RunId, Since, TrainingRunId, Until, VersionId

router = APIRouter(tags=["rollouts"])

CHUNK = 256 * 1024
IN_MEMORY = 8 * 1024 * 1024
FAST = 3
"""Level of gzip: trajectories shrink well at any, and nobody should wait for more."""


class CountsShown(Shown):
    """How many lines each kind would have now; ``unscored`` are in ``all`` only."""

    all: int
    successful: int
    failed: int
    recovery: int
    preference: int
    unscored: int
    out_of_range: int


class RolloutShown(Shown):
    id: UUID
    seed: int = Field(examples=[0])
    reward: float | None = Field(examples=[0.15])
    environment_version_id: UUID | None
    evaluation_run_id: UUID | None
    stages: dict[str, Any] = Field(examples=[{"stage_inventory": 1, "stage_checkout": 0}])


class SchemaShown(Shown):
    """Columns, as ``datasets.Features.from_dict`` takes them."""

    file_name: str
    features: dict[str, Any]


def _filter(
    environment_id: EnvironmentId = None,
    environment_version_id: VersionId = None,
    evaluation_run_id: RunId = None,
    training_run_id: TrainingRunId = None,
    since: Since = None,
    until: Until = None,
) -> Filter:
    return Filter("all", environment_id, environment_version_id, evaluation_run_id, training_run_id, since, until)


def _choice(
    kind: Annotated[
        str,
        Query(
            description="all; successful: reward 1; failed: reward below 1; recovery: above 0 and below 1; "
            "preference: highest against lowest of one environment version",
            json_schema_extra={"enum": list(KINDS)},
        ),
    ] = "all",
    format: Annotated[str, Query(json_schema_extra={"enum": list(FORMATS)})] = DEFAULT_FORMAT,  # noqa: A002
    tokens: Annotated[bool, Query(description="with format atif: token ids and logprobs too")] = False,
) -> Choice:
    return choose(kind, format, tokens=tokens)


Chosen = Annotated[Filter, Depends(_filter)]
Kind = Annotated[Choice, Depends(_choice)]


@router.get(
    "/rollouts",
    summary="Rollouts as NDJSON: a private attachment, complete or not there at all",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}, "description": "One JSON object a line"}},
)
async def export(
    request: Request,
    caller: Exporter,
    database: Store,
    choice: Kind,
    chosen: Chosen,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS, description="most lines of this file")] = MOST_ROWS,
) -> StreamingResponse:
    wanted = replace(chosen, kind=choice.kind)
    with request.app.state.exports.enter(caller.organization_id):
        made = await rollouts.spool(database, caller.scope, wanted, choice.format, cursor=cursor, most=limit)
    detail = {"query": str(request.url.query), "rows": made.rows, "sha256": made.sha256}
    headers = _headers(choice, made)
    file, size = made.file, made.size
    try:
        async with database.scope(caller.scope) as tx:
            await audit.write(tx, "exported", choice.file_name, detail, caller.remote)
        if _takes_gzip(request.headers.get("accept-encoding", "")):
            file, size = await asyncio.to_thread(_compressed, made.file)
            headers["content-encoding"] = "gzip"
    except BaseException:
        made.file.close()
        raise
    headers["content-length"] = str(size)
    return FileOnce(file, headers)


@router.get("/rollouts/counts", summary="How many lines an export of each kind would have")
async def counts(_: Reader, tx: Snapshot, chosen: Chosen) -> CountsShown:
    return CountsShown.model_validate(await rollouts.counts(tx, chosen))


@router.get("/rollouts/schema", summary="The columns of an export")
async def schema(_: Reader, choice: Kind) -> SchemaShown:
    return SchemaShown(file_name=choice.file_name, features=features(choice.format.name, choice.kind))


@router.get("/rollouts/{rollout_id}", summary="One rollout")
async def get_rollout(rollout_id: UUID, _: Reader, tx: Snapshot) -> RolloutShown:
    return RolloutShown.model_validate(single_rollout(await rollouts.get(tx, rollout_id)))


def _headers(choice: Choice, made: Spooled) -> dict[str, str]:
    headers = {
        "content-disposition": attachment(choice.file_name),
        "vary": "accept-encoding",
        "x-privacy-class": "PRIVATE",
        "x-rollout-count": str(made.rows),
        "x-rollout-total": str(made.total),
        "x-rollout-left-out": str(made.left_out),
        "x-content-length": str(made.size),
        "x-content-sha256": made.sha256,
    }
    if made.next_cursor is not None:
        headers["x-next-cursor"] = made.next_cursor
    return headers


def _takes_gzip(accepted: str) -> bool:
    """Whether the header names gzip without refusing it (``q=0``)."""
    offers = [offer.partition(";") for offer in accepted.lower().split(",")]
    return any(name.strip() == "gzip" and rest.strip() not in ("q=0", "q=0.0") for name, _, rest in offers)


def _compressed(plain: IO[bytes]) -> tuple[IO[bytes], int]:
    """The file at its start, as it travels; ``plain`` is closed."""
    packed = cast("IO[bytes]", SpooledTemporaryFile(max_size=IN_MEMORY))  # noqa: SIM115 - closed when it was sent
    with plain, gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=FAST, mtime=0) as compressor:
        shutil.copyfileobj(plain, compressor, CHUNK)
    size = packed.tell()
    packed.seek(0)
    return packed, size


class FileOnce(StreamingResponse):
    """Sends a temporary file, which is closed however that goes."""

    def __init__(self, file: IO[bytes], headers: dict[str, str]) -> None:
        super().__init__(self._chunks(), headers=headers, media_type="application/x-ndjson")
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await asyncio.to_thread(self._file.read, CHUNK):
            yield chunk
