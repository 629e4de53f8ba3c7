"""Stored bytes, always as a download: nothing of an agent runs in a browser."""

from __future__ import annotations

import re
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Request, Response

from relaxforge.store import artifacts
from relaxforge.web.caller import Reader, Tx
from relaxforge.web.errors import Problem

router = APIRouter(tags=["artifacts"])

SANDBOX = "sandbox; default-src 'none'"

_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


@router.head("/artifacts/{artifact_id}", include_in_schema=False)
@router.get(
    "/artifacts/{artifact_id}",
    summary="Download an artifact; one byte range may be asked for",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}, 206: {"description": "The range asked for"}},
)
async def artifact(request: Request, artifact_id: UUID, _: Reader, tx: Tx) -> Response:
    found = await (artifacts.head if request.method == "HEAD" else artifacts.get)(tx, artifact_id)
    etag = f'"{found.sha256.hex()}"'
    headers = {
        "content-disposition": attachment(found.name),
        "content-security-policy": SANDBOX,
        "accept-ranges": "bytes",
        "etag": etag,
    }
    wanted = request.headers.get("range") if request.headers.get("if-range", etag) == etag else None
    start, end = byte_range(wanted, found.size_bytes)
    status = 200
    if (start, end) != (0, found.size_bytes):
        status = 206
        headers["content-range"] = f"bytes {start}-{end - 1}/{found.size_bytes}"
    headers["content-length"] = str(end - start)
    return Response(found.body[start:end], status, headers, found.media_type)


def attachment(name: str) -> str:
    """The header that makes a browser save the answer as ``name``."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return f'attachment; filename="{plain}"' + (f"; filename*=UTF-8''{quote(name, safe='')}" if plain != name else "")


def byte_range(wanted: str | None, size: int) -> tuple[int, int]:
    """Start and end of one range; everything when there is none, or one that we do not know.

    Errors: ``Problem`` 416 when the range begins behind the end.
    """
    found = _RANGE.match(wanted or "")
    if found is None or found.groups() == ("", ""):
        return 0, size
    first, last = found.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end and size > 0:
        detail = f"the artifact has {size} bytes; {wanted} is outside"
        raise Problem(416, "range", detail, headers={"Content-Range": f"bytes */{size}"})
    return start, end
