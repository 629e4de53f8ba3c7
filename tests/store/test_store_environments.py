"""Environments, versions that never change, and their secrets."""

from __future__ import annotations

import asyncio
import hashlib

import psycopg
import pytest

from relaxforge.store import artifacts, environments
from relaxforge.store.errors import ConflictError, InvalidError, MissingError
from relaxforge.store.vault import add_key, open_vault

NEWEST = {"before": None, "limit": 50}


def content(text):
    body = text.encode()
    listed = [{"path": "agent.py", "size": len(body), "sha256": hashlib.sha256(body).hexdigest(), "executable": False}]
    digest = hashlib.sha256(b"digest " + body).digest()
    return {
        "manifest": {"name": "sum", "agent": {"timeout_s": 1.5}},
        "files": listed,
        "digest": digest,
        "package": body,
    }


@pytest.fixture
def inside(app_database, on_loop, two_organizations):
    def call(function, *arguments, scope=two_organizations.a, database=app_database, **values):
        async def go():
            async with database.scope(scope) as tx:
                return await function(tx, *arguments, **values)

        return on_loop(go())

    return call


@pytest.fixture
def environment_id(inside):
    return inside(environments.create_environment, name="sum", description="adds")["id"]


def test_publishing_the_same_content_twice_is_the_same_version(inside, environment_id):
    first = inside(environments.publish, environment_id, **content("one"))
    again = inside(environments.publish, environment_id, **content("one"))
    second = inside(environments.publish, environment_id, **content("two"))
    assert (first.number, first.created) == (1, True)
    assert again == environments.Published(first.version_id, 1, created=False)
    assert (second.number, second.created) == (2, True)
    found = inside(environments.get_environment, environment_id)
    assert (found["versions"], found["latest_number"], found["latest_version_id"]) == (2, 2, second.version_id)
    assert inside(environments.list_environments, **NEWEST) == [found]
    assert inside(environments.find_environment, "sum") == found
    listed = inside(environments.list_versions, environment_id, **NEWEST)
    assert [version["number"] for version in listed] == [2, 1]


def test_a_version_gives_back_exactly_what_was_published(inside, environment_id):
    given = content("one")
    published = inside(environments.publish, environment_id, **given)
    version = inside(environments.get_version, published.version_id)
    assert (version["manifest"], version["files"], version["digest"]) == (
        given["manifest"],
        given["files"],
        given["digest"],
    )
    assert (version["environment_id"], version["environment_name"]) == (environment_id, "sum")
    package = inside(artifacts.get, version["bundle_artifact_id"])
    assert (package.body, package.name) == (b"one", "sum-1.tar.gz")


def test_publishing_at_once_numbers_without_gaps(app_database, on_loop, two_organizations, environment_id):
    async def publish(text):
        async with app_database.scope(two_organizations.a) as tx:
            return await environments.publish(tx, environment_id, **content(text))

    async def all_at_once():
        return await asyncio.gather(*(publish(str(number // 2)) for number in range(12)))

    published = on_loop(all_at_once())
    assert sorted(item.number for item in published if item.created) == [1, 2, 3, 4, 5, 6]
    assert len({item.version_id for item in published}) == 6


def test_a_version_never_changes(inside, environment_id, database_urls):
    published = inside(environments.publish, environment_id, **content("one"))

    async def run(tx, statement):
        await tx.connection.execute(statement)

    for statement in (
        "UPDATE environment_versions SET number = 2",
        "DELETE FROM environment_versions",
        "UPDATE artifacts SET name = 'other'",
        "DELETE FROM artifacts",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            inside(run, statement)
    with psycopg.connect(database_urls["admin"], autocommit=True) as superuser:
        for statement in (
            "UPDATE environment_versions SET manifest = '{}'",
            "DELETE FROM environment_versions",
            "TRUNCATE environment_versions CASCADE",
        ):
            with pytest.raises(psycopg.errors.RestrictViolation, match="environment_versions rows are immutable"):
                superuser.execute(statement)
    assert inside(environments.get_version, published.version_id)["number"] == 1


def test_what_belongs_to_another_organization_is_missing(inside, environment_id, two_organizations):
    version = inside(environments.publish, environment_id, **content("one"))
    artifact_id = inside(environments.get_version, version.version_id)["bundle_artifact_id"]
    b = two_organizations.b
    for function, *arguments in (
        (environments.get_environment, environment_id),
        (environments.get_version, version.version_id),
        (artifacts.get, artifact_id),
        (artifacts.head, artifact_id),
        (environments.delete_secret, environment_id, "API_KEY"),
    ):
        with pytest.raises(MissingError, match="in this organization"):
            inside(function, *arguments, scope=b)
    with pytest.raises(MissingError):
        inside(environments.publish, environment_id, **content("spy"), scope=b)
    with pytest.raises(MissingError):
        inside(environments.list_versions, environment_id, **NEWEST, scope=b)
    assert inside(environments.list_environments, **NEWEST, scope=b) == []


def test_names_are_taken_once_and_never_empty(inside, environment_id):
    with pytest.raises(ConflictError, match="there is an environment 'sum' already"):
        inside(environments.create_environment, name="sum")
    for wrong in (" ", "x" * 201):
        with pytest.raises(InvalidError):
            inside(environments.create_environment, name=wrong)


@pytest.fixture
def vault(tmp_path):
    return open_vault(tmp_path / "key")


def test_secrets_are_set_replaced_listed_and_deleted(inside, environment_id, vault, database_urls):
    inside(environments.set_secret, vault, environment_id, "API_KEY", "first-value")
    inside(environments.set_secret, vault, environment_id, "API_KEY", "second-value \U0001f511")
    assert inside(environments.read_secrets, vault, environment_id) == {"API_KEY": "second-value \U0001f511"}
    assert [set(row) for row in inside(environments.list_secrets, environment_id)] == [{"name", "updated_at"}]
    with psycopg.connect(database_urls["admin"]) as superuser:
        assert b"value" not in superuser.execute("SELECT ciphertext FROM environment_secrets").fetchone()[0]
    inside(environments.delete_secret, environment_id, "API_KEY")
    with pytest.raises(MissingError):
        inside(environments.delete_secret, environment_id, "API_KEY")
    assert inside(environments.read_secrets, vault, environment_id) == {}


def test_a_worker_reads_secrets_and_cannot_set_them(inside, environment_id, vault, worker_database):
    inside(environments.set_secret, vault, environment_id, "API_KEY", "value")
    assert inside(environments.read_secrets, vault, environment_id, database=worker_database) == {"API_KEY": "value"}
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        inside(environments.set_secret, vault, environment_id, "API_KEY", "mine", database=worker_database)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "x"),
        ("A-B", "x"),
        ("1A", "x"),
        ("RELAX_SEED", "x"),
        ("A=B", "x"),
        ("A", ""),
        ("A", "\0"),
        ("A", "x" * 32769),
    ],
)
def test_secrets_that_are_no_variables_are_refused(inside, environment_id, vault, name, value):
    with pytest.raises(InvalidError):
        inside(environments.set_secret, vault, environment_id, name, value)


def test_rotation_encrypts_every_secret_with_the_new_key(inside, environment_id, vault, tmp_path):
    for name in ("A", "B"):
        inside(environments.set_secret, vault, environment_id, name, f"value {name}")
    add_key(tmp_path / "key")
    assert inside(environments.rotate_secrets, open_vault(tmp_path / "key")) == 2
    (tmp_path / "key").write_text((tmp_path / "key").read_text().split()[0])
    newest = open_vault(tmp_path / "key")
    assert inside(environments.read_secrets, newest, environment_id) == {"A": "value A", "B": "value B"}
