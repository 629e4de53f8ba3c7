"""Bytes of an organization, in the database and in a folder."""

from __future__ import annotations

import hashlib
from uuid import uuid4

import fsspec
import psycopg
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.store import artifacts
from relaxforge.store.database import Database
from relaxforge.store.errors import MissingError

BODY = bytes(range(256)) * 4


@pytest.fixture(params=["database", "folder", "objects"])
def database(request, database_urls, on_loop, tmp_path):
    places = {"database": None, "folder": f"file://{tmp_path}/artifacts", "objects": f"memory://{tmp_path}/bucket"}
    url = places[request.param]
    database = Database(database_urls["app"], artifact_url=url)
    on_loop(database.open())
    yield database
    on_loop(database.close())


@pytest.fixture
def inside(on_loop, two_organizations):
    def call(database, function, *arguments, scope=two_organizations.a):
        async def go():
            async with database.scope(scope) as tx:
                return await function(tx, *arguments)

        return on_loop(go())

    return call


@pytest.mark.parametrize("body", [BODY, b"", b"\\x00 looks like hex", b"0" * 3_000_000], ids=len)
def test_bytes_come_back_as_they_were(inside, database, body):
    artifact_id = inside(database, artifacts.put, "log.txt", "text/plain", body)
    found = inside(database, artifacts.get, artifact_id)
    assert (found.name, found.media_type, found.size_bytes, found.body) == ("log.txt", "text/plain", len(body), body)
    known = inside(database, artifacts.head, artifact_id)
    assert (known.sha256, known.size_bytes, known.body) == (hashlib.sha256(body).digest(), len(body), b"")


def test_another_organization_finds_nothing(inside, database, two_organizations):
    artifact_id = inside(database, artifacts.put, "log.txt", "text/plain", BODY)
    for wanted in (artifact_id, uuid4()):
        with pytest.raises(MissingError):
            inside(database, artifacts.get, wanted, scope=two_organizations.b)


def test_changed_bytes_are_never_handed_out(inside, database, database_urls, tmp_path):
    artifact_id = inside(database, artifacts.put, "log.txt", "text/plain", BODY)
    with psycopg.connect(database_urls["admin"], autocommit=True) as superuser:
        superuser.execute("UPDATE artifacts SET body = 'other' WHERE body IS NOT NULL")
    for file in tmp_path.rglob(str(artifact_id)):
        file.write_bytes(b"other")
    objects = MemoryFileSystem()
    for path in objects.find(str(tmp_path)):
        objects.pipe_file(path, b"other")
    with pytest.raises(StorageError, match=f"the bytes of artifact {artifact_id} have changed"):
        inside(database, artifacts.get, artifact_id)


@pytest.mark.parametrize("database", ["folder"], indirect=True)
def test_a_folder_keeps_organizations_apart_and_private(inside, database, tmp_path, two_organizations):
    artifact_id = inside(database, artifacts.put, "../../log.txt", "text/plain", BODY)
    (file,) = (path for path in (tmp_path / "artifacts").rglob("*") if path.is_file())
    assert file.relative_to(tmp_path / "artifacts").parts == (
        str(two_organizations.a.organization_id),
        str(artifact_id),
    )
    assert file.parent.stat().st_mode & 0o077 == 0
    file.unlink()
    with pytest.raises(StorageError, match=f"the bytes of artifact {artifact_id} cannot be read"):
        inside(database, artifacts.get, artifact_id)


@pytest.mark.parametrize("database", ["folder"], indirect=True)
def test_bytes_that_cannot_be_uploaded_leave_no_row(inside, database, tmp_path, database_urls):
    (tmp_path / "artifacts").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="cannot be written"):
        inside(database, artifacts.put, "log.txt", "text/plain", BODY)
    with psycopg.connect(database_urls["admin"]) as superuser:
        assert superuser.execute("SELECT count(*) FROM artifacts").fetchone() == (0,)


def test_an_unknown_kind_of_folder_is_a_mistake_of_the_user(inside, database_urls, on_loop):
    database = Database(database_urls["app"], artifact_url="nowhere://bucket")
    on_loop(database.open())
    try:
        with pytest.raises(ConfigError, match=r"the artifact URL nowhere://\.\.\. cannot be used"):
            inside(database, artifacts.put, "log.txt", "text/plain", BODY)
    finally:
        on_loop(database.close())


class Moody(MemoryFileSystem):
    """A store whose library has errors of its own, as those of clouds do."""

    protocol = ("moody",)

    def pipe_file(self, *_, **__):
        raise LookupError("no credentials")


def test_an_error_of_a_cloud_library_is_a_storage_error(inside, database_urls, on_loop):
    fsspec.register_implementation("moody", Moody, clobber=True)
    database = Database(database_urls["app"], artifact_url="moody://bucket")
    on_loop(database.open())
    with pytest.raises(StorageError, match="cannot be written to moody://bucket: no credentials"):
        inside(database, artifacts.put, "log.txt", "text/plain", BODY)
    on_loop(database.close())
