"""Environments, their immutable versions, and their secrets."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response, UploadFile
from pydantic import Field

from relaxforge.environments.bundle import Bundle, pack
from relaxforge.store import audit, environments
from relaxforge.store.database import Row, Transaction
from relaxforge.web.api.shapes import Asked, Moment, Page, Shown
from relaxforge.web.caller import Caller, Publisher, Reader, Snapshot, Store, Tx
from relaxforge.web.parameters import Cursor, Limit, before, page
from relaxforge.web.uploads import read_package

router = APIRouter(tags=["environments"])


class EnvironmentShown(Shown):
    id: UUID
    name: str
    description: str
    versions: int
    latest_number: int | None
    latest_version_id: UUID | None
    published_at: Moment | None
    created_at: Moment


class EnvironmentAsked(Asked):
    name: str = Field(min_length=1, max_length=200, examples=["corner-shop"])
    description: str = Field("", max_length=10_000)


class VersionListed(Shown):
    """``digest`` is the SHA-256 over the sorted files, in hex."""

    id: UUID
    environment_id: UUID
    environment_name: str
    number: int
    digest: str
    manifest: dict[str, Any]
    bundle_artifact_id: UUID
    published_by: UUID | None
    created_at: Moment


class VersionShown(VersionListed):
    files: list[dict[str, Any]]


class SecretListed(Shown):
    name: str
    updated_at: Moment


class SecretsShown(Shown):
    items: list[SecretListed]


class SecretAsked(Asked):
    value: str = Field(min_length=1, max_length=32_768, json_schema_extra={"writeOnly": True})


@router.get("/environments", summary="Environments, newest first")
async def list_environments(
    _: Reader,
    tx: Snapshot,
    cursor: Cursor = None,
    limit: Limit = 50,
    name: Annotated[str | None, Query(max_length=200, description="only the one with this name")] = None,
) -> Page[EnvironmentShown]:
    if name is not None:
        found = await environments.find_environment(tx, name)
        return Page[EnvironmentShown].of(page([found] if found else [], limit))
    rows = await environments.list_environments(tx, before=before(cursor), limit=limit + 1)
    return Page[EnvironmentShown].of(page(rows, limit))


@router.post("/environments", status_code=201, summary="Make an environment; its versions are published into it")
async def create_environment(caller: Publisher, tx: Tx, asked: EnvironmentAsked) -> EnvironmentShown:
    row = await environments.create_environment(tx, name=asked.name, description=asked.description)
    await audit.write(tx, "environment_created", str(row["id"]), {"name": asked.name}, caller.remote)
    return EnvironmentShown.of(row)


@router.get("/environments/{environment_id}", summary="One environment")
async def get_environment(environment_id: UUID, _: Reader, tx: Snapshot) -> EnvironmentShown:
    return EnvironmentShown.of(await environments.get_environment(tx, environment_id))


@router.get("/environments/{environment_id}/versions", summary="Its versions, newest first")
async def list_versions(
    environment_id: UUID, _: Reader, tx: Snapshot, cursor: Cursor = None, limit: Limit = 50
) -> Page[VersionListed]:
    rows = await environments.list_versions(tx, environment_id, before=before(cursor), limit=limit + 1)
    return Page[VersionListed].of(page([_hex(row) for row in rows], limit))


@router.post(
    "/environments/{environment_id}/versions",
    status_code=201,
    summary="Publish a version: a tar.gz of a folder with environment.toml; the same content twice is one version",
    responses={200: {"description": "The same content was published before", "model": VersionShown}},
)
async def publish_version(
    environment_id: UUID, response: Response, caller: Publisher, database: Store, bundle: UploadFile
) -> VersionShown:
    checked = await read_package(await bundle.read())
    async with database.scope(caller.scope) as tx:
        row, created = await publish(tx, caller, environment_id, checked)
    response.status_code = 201 if created else 200
    return VersionShown.of(row)


@router.get("/environment-versions/{version_id}", summary="One version with its files")
async def get_version(version_id: UUID, _: Reader, tx: Snapshot) -> VersionShown:
    return VersionShown.of(_hex(await environments.get_version(tx, version_id)))


@router.get("/environments/{environment_id}/secrets", summary="Names of its secrets; nobody can read a value again")
async def list_secrets(environment_id: UUID, _: Reader, tx: Snapshot) -> SecretsShown:
    await environments.get_environment(tx, environment_id)
    rows = await environments.list_secrets(tx, environment_id)
    return SecretsShown(items=[SecretListed.of(row) for row in rows])


@router.put("/environments/{environment_id}/secrets/{name}", status_code=204, summary="Set a secret")
async def set_secret(
    request: Request, environment_id: UUID, name: str, caller: Publisher, tx: Tx, asked: SecretAsked
) -> None:
    await environments.set_secret(tx, request.app.state.vault, environment_id, name, asked.value)
    await audit.write(tx, "secret_set", str(environment_id), {"name": name}, caller.remote)


@router.delete("/environments/{environment_id}/secrets/{name}", status_code=204, summary="Delete a secret")
async def delete_secret(environment_id: UUID, name: str, caller: Publisher, tx: Tx) -> None:
    await environments.delete_secret(tx, environment_id, name)
    await audit.write(tx, "secret_deleted", str(environment_id), {"name": name}, caller.remote)


async def publish(tx: Transaction, caller: Caller, environment_id: UUID, bundle: Bundle) -> tuple[Row, bool]:
    """The version's row, and whether it is new. Errors: ``MissingError``."""
    published = await environments.publish(
        tx,
        environment_id,
        manifest=asdict(bundle.manifest),
        files=[file.listed for file in bundle.files],
        digest=bundle.digest,
        package=await asyncio.to_thread(pack, bundle),
    )
    if published.created:
        detail = {"environmentId": str(environment_id), "digest": bundle.digest.hex()}
        await audit.write(tx, "version_published", str(published.version_id), detail, caller.remote)
    return _hex(await environments.get_version(tx, published.version_id)), published.created


def _hex(row: Row) -> Row:
    return {**row, "digest": bytes(row["digest"]).hex()}
