"""Bytes that an organization keeps: in the database, or in a folder of any fsspec file system."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from fsspec.core import url_to_fs

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.store.database import Row, Scope, Transaction
from relaxforge.store.errors import MissingError


@dataclass(frozen=True, slots=True)
class Artifact:
    """``body`` is empty in the answer of ``head``; ``size_bytes`` and ``sha256`` are always of the whole."""

    id: UUID
    name: str
    media_type: str
    sha256: bytes
    size_bytes: int
    created_at: datetime
    body: bytes = field(repr=False, default=b"")


async def put(tx: Transaction, name: str, media_type: str, body: bytes) -> UUID:
    """Keep ``body``; its id. Errors: ``StorageError``.

    Outside the database it is uploaded first: a row always has its bytes, and a transaction that is undone leaves at
    most a file that nothing names.
    """
    identity = uuid4()
    uri = await asyncio.to_thread(_upload, tx.artifact_url, _scope(tx), identity, body) if tx.artifact_url else None
    given = {"artifact_id": identity, "name": name, "media_type": media_type, "size_bytes": len(body), "uri": uri}
    sha256 = hashlib.sha256(body).digest()
    await tx.run("artifacts.put", **given, sha256=sha256, body=body if uri is None else None)
    return identity


async def head(tx: Transaction, artifact_id: UUID) -> Artifact:
    """What is known of an artifact, without its bytes. Errors: ``MissingError``."""
    return _artifact(await _row(tx, "artifacts.head", artifact_id), b"")


async def get(tx: Transaction, artifact_id: UUID) -> Artifact:
    """An artifact with its bytes, which are compared with their SHA-256 before anybody gets them.

    Errors: ``MissingError``; ``StorageError`` when the bytes are gone or have changed.
    """
    row = await _row(tx, "artifacts.get", artifact_id)
    body: bytes = row["body"] if row["uri"] is None else await asyncio.to_thread(_download, row["uri"], artifact_id)
    if hashlib.sha256(body).digest() != row["sha256"]:
        raise StorageError(f"the bytes of artifact {artifact_id} have changed since they were stored; restore a backup")
    return _artifact(row, body)


def _upload(base: str, scope: Scope, identity: UUID, body: bytes) -> str:
    """``base/organization/artifact``: the organization is part of the path, whatever the file system."""
    uri = f"{base.rstrip('/')}/{scope.organization_id}/{identity}"
    system, path = _file_system(uri)
    try:
        _make_folder(system, path.rpartition("/")[0])
        system.pipe_file(path, body)
    except Exception as error:  # every file system has errors of its own
        raise StorageError(f"artifact {identity} cannot be written to {base}: {error}") from error
    return uri


def _make_folder(system: Any, folder: str) -> None:
    """Object stores need none, and nobody else on this machine enters that of an organization."""
    if "file" in system.protocol:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)


def _download(uri: str, identity: UUID) -> bytes:
    system, path = _file_system(uri)
    try:
        return bytes(system.cat_file(path))
    except Exception as error:  # every file system has errors of its own
        raise StorageError(f"the bytes of artifact {identity} cannot be read: {error}") from error


def _file_system(uri: str) -> tuple[Any, str]:
    try:
        system, path = url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"the artifact URL {uri.partition('://')[0]}://... cannot be used: {error}") from error
    return system, str(path)


def _scope(tx: Transaction) -> Scope:
    if tx.scope is None:
        raise StorageError("an artifact belongs to an organization; this transaction has none")
    return tx.scope


async def _row(tx: Transaction, query: str, artifact_id: UUID) -> Row:
    row = await tx.one(query, artifact_id=artifact_id)
    if row is None:
        raise MissingError("artifact", artifact_id)
    return row


def _artifact(row: Row, body: bytes) -> Artifact:
    kept = {name: row[name] for name in ("id", "name", "media_type", "size_bytes", "created_at")}
    return Artifact(sha256=bytes(row["sha256"]), body=body, **kept)
