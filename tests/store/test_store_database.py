"""Transactions: their scope, what they see, what may go in, and what happens when the server is gone."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.store.database import Database
from relaxforge.store.queries import query
from relaxforge.store.urls import with_parts

CURRENT = "SELECT current_organization() AS organization, current_person() AS person"


async def one(tx, statement, *values):
    return await (await tx.connection.execute(statement, values)).fetchone()


def test_the_scope_ends_with_its_transaction(on_loop, database_urls, two_organizations):
    async def go():
        async with Database(database_urls["app"], most=1) as database:
            async with database.scope(two_organizations.a) as tx:
                inside = await one(tx, CURRENT)
            async with database.outside() as tx:
                after = await one(tx, CURRENT)
                raw = await one(tx, "SELECT current_setting('app.organization_id', true) AS raw")
        return inside, after, raw

    inside, after, raw = on_loop(go())
    assert inside == {
        "organization": two_organizations.a.organization_id,
        "person": two_organizations.a.user_id,
    }
    assert after == {"organization": None, "person": None}
    assert raw["raw"] in (None, ""), "PostgreSQL leaves an empty string behind, which must match nothing"


def test_a_setting_of_the_session_does_not_reach_the_next_user_of_the_connection(
    on_loop, database_urls, two_organizations
):
    async def go():
        async with Database(database_urls["app"], most=1) as database:
            async with database.scope(two_organizations.a) as tx:
                leak = str(two_organizations.a.organization_id)
                await one(tx, "SELECT set_config('app.organization_id', %s, false)", leak)
            async with database.outside() as tx:
                return await one(tx, CURRENT)

    assert on_loop(go())["organization"] is None


def test_a_snapshot_sees_one_moment_and_writes_nothing(on_loop, app_database, two_organizations):
    count = "SELECT count(*) AS n FROM environments"

    async def go():
        async with app_database.snapshot(two_organizations.a) as reading:
            before = await one(reading, count)
            async with app_database.scope(two_organizations.a) as writing:
                await writing.run("environments.create", name="later", description="")
            assert await one(reading, count) == before
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                await reading.run("environments.create", name="mine", description="")

    on_loop(go())


def test_an_error_undoes_the_whole_transaction(on_loop, app_database, two_organizations):
    async def half():
        async with app_database.scope(two_organizations.a) as tx:
            await tx.run("environments.create", name="half", description="")
            await tx.run("environments.create", name=None, description="")

    async def go():
        with pytest.raises(psycopg.errors.NotNullViolation):
            await half()
        async with app_database.scope(two_organizations.a) as tx:
            return await tx.one("environments.find", name="half")

    assert on_loop(go()) is None


def test_text_that_postgres_cannot_hold_is_cleaned_wherever_it_comes_from(on_loop, app_database, two_organizations):
    async def go():
        async with app_database.scope(two_organizations.a) as tx:
            detail = {"k\0ey": ["\ud800", {"deep": "a\0b"}], "fine": "\\u0000 stays"}
            await tx.run("audit.write", user_id=None, action="a\0b", subject="\udfff", detail=detail, remote="")
            return (await tx.all("audit.entries", before_at=None, before_id=None, limit=1))[0]

    entry = on_loop(go())
    assert (entry["action"], entry["subject"]) == ("a\ufffdb", "\ufffd")
    assert entry["detail"] == {"k\ufffdey": ["\ufffd", {"deep": "a\ufffdb"}], "fine": "\\u0000 stays"}


def test_numbers_that_are_no_json_are_refused(on_loop, app_database, two_organizations):
    async def go():
        async with app_database.scope(two_organizations.a) as tx:
            await tx.run("audit.write", user_id=None, action="a", subject="", detail={"x": float("nan")}, remote="")

    with pytest.raises(ValueError, match="not JSON compliant"):
        on_loop(go())


def test_rows_are_streamed_in_batches(on_loop, app_database, two_organizations):
    async def go():
        async with app_database.scope(two_organizations.a) as tx:
            for number in range(25):
                await tx.run("environments.create", name=f"{number}", description="")
            arguments = {"before_at": None, "before_id": None, "limit": 100}
            streamed = [row["name"] async for row in tx.stream("environments.list", batch=10, **arguments)]
            return streamed, [row["name"] for row in await tx.all("environments.list", **arguments)]

    streamed, at_once = on_loop(go())
    assert streamed == at_once
    assert len(streamed) == 25


def test_times_are_utc(on_loop, app_database):
    async def go():
        async with app_database.outside() as tx:
            return (await one(tx, "SELECT now() AS now"))["now"]

    assert on_loop(go()).utcoffset().total_seconds() == 0


def test_a_server_that_is_not_there_is_a_storage_error(on_loop, tmp_path):
    with pytest.raises(StorageError, match=r"the database cannot be reached: .*No such file or directory"):
        on_loop(Database(f"postgresql://nobody@/nothing?host={tmp_path}").open())


def test_a_wrong_password_says_so_at_once_and_is_not_repeated(on_loop, database_urls):
    with pytest.raises(StorageError, match="password authentication failed for user") as caught:
        on_loop(Database(with_parts(database_urls["app"], password="my guess")).open())
    assert "my guess" not in str(caught.value)


def test_an_address_that_is_none_is_a_mistake_of_the_user(on_loop):
    with pytest.raises(ConfigError, match="the database URL cannot be read"):
        Database("postgresql://[")


def test_a_connection_that_dies_is_a_storage_error_and_the_next_transaction_works(
    on_loop, app_database, two_organizations, database_urls
):
    async def cut():
        async with app_database.scope(two_organizations.a) as tx:
            pid = (await one(tx, "SELECT pg_backend_pid() AS pid"))["pid"]
            await asyncio.to_thread(terminate, pid)
            await one(tx, "SELECT 1")

    async def go():
        with pytest.raises(StorageError, match="nothing of this step was written"):
            await cut()
        async with app_database.scope(two_organizations.a) as tx:
            return await one(tx, "SELECT 1 AS one")

    def terminate(pid):
        with psycopg.connect(database_urls["admin"], autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    assert on_loop(go()) == {"one": 1}


def test_connections_that_died_while_nobody_used_them_are_not_handed_out(
    on_loop, app_database, two_organizations, database_urls
):
    def cut_all():
        with psycopg.connect(database_urls["admin"], autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    async def go():
        async with app_database.scope(two_organizations.a), app_database.scope(two_organizations.b):
            pass  # two connections are in the pool from now on
        await asyncio.to_thread(cut_all)
        async with app_database.scope(two_organizations.a) as tx:
            return await one(tx, "SELECT 1 AS one")

    assert on_loop(go()) == {"one": 1}


def test_an_unknown_query_is_an_error_of_ours():
    with pytest.raises(KeyError):
        query("environments.nonsense")
