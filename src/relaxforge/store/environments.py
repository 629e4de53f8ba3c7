"""Environments, their immutable versions, and their secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from relaxforge.store import artifacts
from relaxforge.store.database import Row, Transaction
from relaxforge.store.errors import ConflictError, InvalidError, MissingError
from relaxforge.store.vault import Vault

MOST_SECRET_BYTES = 32 * 1024
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, slots=True)
class Published:
    """A version; ``created`` is false when the same content was published before."""

    version_id: UUID
    number: int
    created: bool


async def create_environment(tx: Transaction, *, name: str, description: str = "") -> Row:
    """As ``get_environment``. Errors: ``InvalidError``; ``ConflictError`` for a name that is taken."""
    if not name.strip() or len(name) > 200:
        raise InvalidError("name", f"must have 1 to 200 characters, got {len(name)}")
    row = await tx.one("environments.create", name=name, description=description)
    if row is None:
        raise ConflictError(
            f"there is an environment {name!r} already; choose another name, or publish a version of it"
        )
    return await get_environment(tx, row["id"])


async def get_environment(tx: Transaction, environment_id: UUID) -> Row:
    """``id, name, description, created_at, versions`` (how many)``, latest_number, latest_version_id, published_at``.

    Errors: ``MissingError``.
    """
    row = await tx.one("environments.get", environment_id=environment_id)
    if row is None:
        raise MissingError("environment", environment_id)
    return row


async def find_environment(tx: Transaction, name: str) -> Row | None:
    """As ``get_environment``, by name; ``None`` without one."""
    row = await tx.one("environments.find", name=name)
    return None if row is None else await get_environment(tx, row["id"])


async def list_environments(tx: Transaction, *, before: tuple[datetime, UUID] | None, limit: int) -> list[Row]:
    """As ``get_environment``, newest first."""
    at, identity = before or (None, None)
    return await tx.all("environments.list", before_at=at, before_id=identity, limit=limit)


async def publish(
    tx: Transaction,
    environment_id: UUID,
    *,
    manifest: Mapping[str, Any],
    files: Sequence[Mapping[str, Any]],
    digest: bytes,
    package: bytes,
) -> Published:
    """Publish a bundle as the next version; the same content twice is the same version.

    ``digest`` is the bundle's (32 bytes), ``files`` are ``{path, size, sha256, executable}``, ``package`` is the packed
    bundle. Errors: ``MissingError`` for an unknown environment.
    """
    environment = await tx.one("environments.lock", environment_id=environment_id)
    if environment is None:
        raise MissingError("environment", environment_id)
    known = await tx.one("environments.version_by_digest", environment_id=environment_id, digest=digest)
    if known is not None:
        return Published(known["id"], known["number"], created=False)
    number = (await tx.all("environments.next_number", environment_id=environment_id))[0]["number"]
    name = f"{environment['name']}-{number}.tar.gz"
    artifact_id = await artifacts.put(tx, name, "application/gzip", package)
    person = tx.scope.user_id if tx.scope else None
    rows = await tx.all(
        "environments.publish",
        environment_id=environment_id,
        number=number,
        digest=digest,
        manifest=dict(manifest),
        files=Jsonb(list(files)),
        bundle_artifact_id=artifact_id,
        published_by=person,
    )
    return Published(rows[0]["id"], number, created=True)


async def get_version(tx: Transaction, version_id: UUID) -> Row:
    """``id, environment_id, environment_name, number, digest, manifest, files, bundle_artifact_id, published_by,
    created_at``. Errors: ``MissingError``."""
    row = await tx.one("environments.version", version_id=version_id)
    if row is None:
        raise MissingError("environment version", version_id)
    return row


async def list_versions(
    tx: Transaction, environment_id: UUID, *, before: tuple[datetime, UUID] | None, limit: int
) -> list[Row]:
    """As ``get_version`` without ``files``, newest first. Errors: ``MissingError`` for an unknown environment."""
    await get_environment(tx, environment_id)
    at, identity = before or (None, None)
    return await tx.all(
        "environments.versions", environment_id=environment_id, before_at=at, before_id=identity, limit=limit
    )


async def set_secret(tx: Transaction, vault: Vault, environment_id: UUID, name: str, value: str) -> None:
    """Set one secret; from then on only runs read it. Errors: ``InvalidError``; ``MissingError``."""
    if not _VARIABLE.fullmatch(name) or name.startswith("RELAX_"):
        raise InvalidError("name", f"must be the name of a variable, without the prefix RELAX_; got {name!r}")
    if not value or "\0" in value or len(value.encode(errors="replace")) > MOST_SECRET_BYTES:
        raise InvalidError("value", f"must have 1 to {MOST_SECRET_BYTES} bytes, and no NUL")
    await get_environment(tx, environment_id)
    ciphertext = vault.seal(value, _place(tx, environment_id, name))
    await tx.run("environments.set_secret", environment_id=environment_id, name=name, ciphertext=ciphertext)


async def delete_secret(tx: Transaction, environment_id: UUID, name: str) -> None:
    """Errors: ``MissingError``."""
    if not await tx.run("environments.delete_secret", environment_id=environment_id, name=name):
        raise MissingError("secret", name)


async def list_secrets(tx: Transaction, environment_id: UUID) -> list[Row]:
    """``name, updated_at``, by name; never a value."""
    return await tx.all("environments.secret_names", environment_id=environment_id)


async def read_secrets(tx: Transaction, vault: Vault, environment_id: UUID) -> dict[str, str]:
    """Name and value of every secret, for a run. Errors: ``StorageError`` when one cannot be decrypted."""
    rows = await tx.all("environments.secrets", environment_id=environment_id)
    return {row["name"]: vault.open(row["ciphertext"], _place(tx, environment_id, row["name"])) for row in rows}


async def rotate_secrets(tx: Transaction, vault: Vault) -> int:
    """Encrypt every secret of the organization with the newest key; how many there are."""
    rows = await tx.all("environments.all_secrets")
    for row in rows:
        place = _place(tx, row["environment_id"], row["name"])
        ciphertext = vault.seal(vault.open(row["ciphertext"], place), place)
        await tx.run(
            "environments.set_secret", environment_id=row["environment_id"], name=row["name"], ciphertext=ciphertext
        )
    return len(rows)


def _place(tx: Transaction, environment_id: UUID, name: str) -> tuple[UUID | str, ...]:
    return (tx.scope.organization_id if tx.scope else "", environment_id, name)
