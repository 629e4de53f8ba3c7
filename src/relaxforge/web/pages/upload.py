"""An environment version that comes through a form: one packed bundle, or the files of a chosen folder."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Sequence
from pathlib import PurePosixPath

from starlette.datastructures import UploadFile
from starlette.requests import Request

from relaxforge.environments.bundle import LEFT_OUT, MOST_FILES, Bundle
from relaxforge.web.errors import Problem
from relaxforge.web.uploads import read_package


async def uploaded_bundle(request: Request) -> Bundle:
    """The bundle that a form carries. Errors: ``Problem`` 422 with what is wrong with it."""
    return await read_package(await _package(request))


async def _package(request: Request) -> bytes:
    async with request.form(max_files=MOST_FILES + 1) as form:
        package = form.get("bundle")
        if isinstance(package, UploadFile) and package.filename:
            return await package.read()
        chosen = [each for each in form.getlist("files") if isinstance(each, UploadFile) and each.filename]
        if not chosen:
            raise Problem(422, "invalid", "choose a folder with environment.toml, or a packed bundle (.tar.gz)")
        files = [(each.filename or "", await each.read()) for each in chosen]
    return await asyncio.to_thread(packed, files)


def packed(files: Sequence[tuple[str, bytes]]) -> bytes:
    """A tar.gz of files as a browser names them: the first folder is the one that was chosen."""
    archived = io.BytesIO()
    with tarfile.open(fileobj=archived, mode="w:gz", compresslevel=1) as archive:
        for name, content in files:
            path = PurePosixPath(*PurePosixPath(name).parts[1:])
            if LEFT_OUT.isdisjoint(path.parts):
                member = tarfile.TarInfo(str(path))
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return archived.getvalue()
