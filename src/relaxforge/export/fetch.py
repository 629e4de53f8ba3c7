"""Exports out of a workspace over HTTP: every byte is counted and compared before it is believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

import httpx

from relaxforge.core.errors import ConfigError
from relaxforge.export.errors import TransferError

_TIMEOUT_S = 330.0
"""Seconds of silence: the workspace writes the whole file before its first byte leaves, and may take that long."""

_USERS_TO_MEND = {400, 401, 403, 404, 422}

Arrived = Callable[[int, int], None]
"""Told how many bytes came and how many there will be."""


@dataclass(frozen=True, slots=True)
class Part:
    """One answer, all of it written. ``left_out`` rows cannot be told in this format, ``total`` match the filter."""

    rows: int
    left_out: int
    total: int
    size: int
    next_cursor: str | None


def open_workspace(url: str, token: str) -> httpx.Client:
    """A client for one workspace; it follows no redirect, so the token goes nowhere else."""
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=httpx.Timeout(_TIMEOUT_S))


def fetch(client: httpx.Client, query: Mapping[str, str], into: IO[bytes], arrived: Arrived) -> Part:
    """Write one export to ``into``. Errors: ``ConfigError`` when the request is refused, ``TransferError`` else."""
    try:
        with client.stream("GET", "/api/v1/rollouts", params=dict(query)) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
                raise _refusal(answer)
            return _write(answer, into, arrived)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{client.base_url} is no URL: {error}") from error
    except httpx.HTTPError as error:
        raise TransferError(
            f"{client.base_url} did not send all of the export: {str(error) or type(error).__name__}"
        ) from error


def fetch_features(client: httpx.Client, query: Mapping[str, str]) -> dict[str, Any]:
    """The columns of an export, for ``datasets.Features.from_dict``. Errors: as ``fetch``."""
    try:
        answer = client.get("/api/v1/rollouts/schema", params=dict(query))
    except httpx.HTTPError as error:
        raise TransferError(f"{client.base_url} does not answer: {error}") from error
    if answer.status_code != httpx.codes.OK:
        raise _refusal(answer)
    features: dict[str, Any] = answer.json()["features"]
    return features


def _write(answer: httpx.Response, into: IO[bytes], arrived: Arrived) -> Part:
    said = answer.headers
    try:
        size, rows, total = (int(said[f"x-{name}"]) for name in ("content-length", "rollout-count", "rollout-total"))
        sha256, left_out = said["x-content-sha256"], int(said.get("x-rollout-left-out", 0))
    except (KeyError, ValueError) as error:
        raise TransferError(f"{answer.url.host} is no workspace of ours: its answer lacks {error}") from error
    digest, came, lines = hashlib.sha256(), 0, 0
    for chunk in answer.iter_bytes():
        into.write(chunk)
        digest.update(chunk)
        came += len(chunk)
        lines += chunk.count(b"\n")
        arrived(came, size)
    if (came, lines, digest.hexdigest()) != (size, rows, sha256):
        raise TransferError(
            f"the export was damaged on its way: {came} of {size} bytes, {lines} of {rows} lines, "
            f"SHA-256 {digest.hexdigest()[:12]} instead of {sha256[:12]}; try again"
        )
    return Part(rows, left_out, total, size, said.get("x-next-cursor"))


def _refusal(answer: httpx.Response) -> Exception:
    """The workspace's own words where it has any."""
    try:
        detail = str(answer.json()["detail"])
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError):
        detail = answer.reason_phrase
    kind = ConfigError if answer.status_code in _USERS_TO_MEND else TransferError
    return kind(f"the workspace refused ({answer.status_code}): {detail}")
