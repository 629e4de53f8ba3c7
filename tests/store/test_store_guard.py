"""The server refuses a database, or a login, under which rows could leak."""

from __future__ import annotations

import secrets

import psycopg
import pytest

from relaxforge.core.errors import ConfigError
from relaxforge.store import guard
from relaxforge.store.database import Database
from relaxforge.store.urls import with_parts
from relaxforge.store.versions import refuse_old_server


@pytest.fixture
def as_owner(database_urls):
    """Runs statements as the owner of the schema."""
    with psycopg.connect(database_urls["owner"], autocommit=True) as connection:
        yield connection.execute


@pytest.fixture
def login(database_urls):
    """Makes a login with the given attributes and memberships; its URL."""
    made = []
    with psycopg.connect(database_urls["admin"], autocommit=True) as connection:

        def make(attributes):
            name = f"guard_{secrets.token_hex(6)}"
            connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' {attributes}")
            made.append(name)
            return with_parts(database_urls["admin"], user=name, password="secret", options="")

        yield make
        for name in made:
            connection.execute(f"DROP OWNED BY {name}")
            connection.execute(f"DROP ROLE {name}")


def refusal(on_loop, url, role="app"):
    async def checked():
        async with Database(url, most=1) as database, database.outside() as tx:
            await guard.check(tx, role)

    with pytest.raises(ConfigError) as caught:
        on_loop(checked())
    return str(caught.value)


def test_the_roles_that_were_made_for_it_may_start(on_loop, app_database, worker_database):
    async def go():
        async with app_database.outside() as tx:
            await guard.check(tx)
        async with worker_database.outside() as tx:
            await guard.check(tx, "worker")

    on_loop(go())


def test_a_login_of_ones_own_that_is_a_member_of_the_role_may_start(on_loop, login):
    async def go(url):
        async with Database(url, most=1) as database, database.outside() as tx:
            await guard.check(tx)

    on_loop(go(login("IN ROLE relaxforge_app")))


def test_a_superuser_is_refused(on_loop, database_urls):
    assert "is a superuser, so that it sees every organization" in refusal(on_loop, database_urls["admin"])


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ("BYPASSRLS IN ROLE relaxforge_app", "gets past row-level security"),
        ("IN ROLE relaxforge_app, relaxforge_definer", "is a member of relaxforge_definer"),
        ("IN ROLE relaxforge_app, relaxforge_owner", "member of relaxforge_definer"),
        ("", "is not relaxforge_app"),
    ],
)
def test_a_login_that_could_see_more_is_refused(on_loop, login, attributes, why):
    assert why in refusal(on_loop, login(attributes))


def test_an_owner_of_a_table_is_refused(on_loop, login, database_urls):
    url = login("IN ROLE relaxforge_app")
    with psycopg.connect(database_urls["admin"], autocommit=True) as connection:
        name = psycopg.conninfo.conninfo_to_dict(url)["user"]
        connection.execute(
            f"CREATE TABLE private_notes (organization_id uuid); ALTER TABLE private_notes OWNER TO {name}"
        )
    assert "owns the table private_notes" in refusal(on_loop, url)


def test_a_worker_with_the_applications_login_is_refused(on_loop, database_urls, login):
    assert "is not relaxforge_worker" in refusal(on_loop, database_urls["app"], "worker")
    both = login("IN ROLE relaxforge_app, relaxforge_worker")
    assert "may read people and tokens" in refusal(on_loop, both, "worker")


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("CREATE TABLE notes (organization_id uuid NOT NULL)", "the table notes has row-level security switched off"),
        (
            "CREATE TABLE notes (organization_id uuid); ALTER TABLE notes ENABLE ROW LEVEL SECURITY",
            "the table notes does not force",
        ),
        (
            "CREATE TABLE notes (organization_id uuid); "
            "ALTER TABLE notes ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
            "the table notes has no policy",
        ),
        (
            "CREATE VIEW all_runs AS SELECT * FROM evaluation_runs",
            "the table all_runs is no table with row-level security",
        ),
        ("ALTER TABLE rollouts DISABLE ROW LEVEL SECURITY", "the table rollouts has row-level security switched off"),
        ("DROP POLICY organization ON jobs", "the table jobs has no policy"),
        (
            "CREATE POLICY all_of_it ON jobs TO relaxforge_app USING (true)",
            "the table jobs has a policy that lets other",
        ),
        (
            "CREATE POLICY wider ON jobs TO relaxforge_app USING (organization_id = current_organization() OR true)",
            "the table jobs has a policy that lets other",
        ),
    ],
)
def test_a_table_that_does_not_keep_organizations_apart_is_refused(on_loop, database_urls, as_owner, statement, why):
    as_owner(statement)
    assert why in refusal(on_loop, database_urls["app"])


def test_a_database_without_the_schema_is_refused(on_loop, database_urls):
    with psycopg.connect(database_urls["admin"], autocommit=True) as connection:
        connection.execute("DROP SCHEMA relaxforge CASCADE")
    assert "has no RelaxForge schema; run `relaxforge migrate`" in refusal(on_loop, database_urls["app"])


def test_pending_unknown_changed_and_absent_migrations_are_refused(on_loop, database_urls, as_owner):
    as_owner("UPDATE migrations SET sha256 = repeat('0', 64) WHERE number = 1")
    assert "migration 0001_first was applied with other content" in refusal(on_loop, database_urls["app"])
    as_owner("DELETE FROM migrations WHERE number = 1")
    assert "lacks migrations (0001_first); run `relaxforge migrate`" in refusal(on_loop, database_urls["app"])
    as_owner("INSERT INTO migrations (number, name, sha256) VALUES (9999, 'later', '')")
    assert "has migration 9999, which this version of RelaxForge does not know" in refusal(
        on_loop, database_urls["app"]
    )
    as_owner("DROP TABLE migrations")
    assert "has no RelaxForge schema; run `relaxforge migrate`" in refusal(on_loop, database_urls["app"])


@pytest.mark.parametrize("version", [140022, 150013, 160009, 170005])
def test_servers_that_leak_past_row_level_security_are_refused(version):
    with pytest.raises(ConfigError, match=r"can leak rows past row-level security; use 15\.14"):
        refuse_old_server(version)


@pytest.mark.parametrize("version", [150014, 150018, 160010, 170006, 180000, 190001])
def test_servers_with_the_repair_are_welcome(version):
    refuse_old_server(version)
