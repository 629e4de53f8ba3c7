"""Rows of one organization do not exist for another: for the application's role, whatever the query forgets to say.

Every wall is tried twice: it holds, and it falls when row-level security is switched off, so we know what holds it.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from relaxforge.store.database import Database

FILLED = Path(__file__).with_name("filled.sql").read_text()
TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'relaxforge'::regnamespace AND relkind = 'r'"


@pytest.fixture
def owner(database_urls):
    with psycopg.connect(database_urls["admin"], autocommit=True) as connection:
        yield connection


@pytest.fixture
def tables(owner, two_organizations):
    """Every table that holds rows of organizations; both organizations have one row in each."""
    names = sorted(name for (name,) in owner.execute(TABLES) if name != "migrations")
    for scope in (two_organizations.a, two_organizations.b):
        values = {"organization": scope.organization_id, "user": scope.user_id}
        for statement in FILLED.split(";\n"):
            owner.execute(statement, values)
    for name in names:
        assert owner.execute(f"SELECT count(*) FROM {name}").fetchone()[0] == 2, f"filled.sql has no row for {name}"
    return names


async def rows(tx, statement):
    return await (await tx.connection.execute(statement)).fetchall()


async def run(database, scope, *statements):
    async with database.scope(scope) as tx:
        for statement in statements:
            await tx.connection.execute(statement)


async def only_own_rows_are_seen(database, scope, other, tables):
    async with database.scope(scope) as tx:
        for table in tables:
            owned = {"organizations": "id", "users": "id"}.get(table, "organization_id")
            theirs = scope.user_id if table == "users" else scope.organization_id
            found = await rows(tx, f"SELECT {owned} FROM {table}")
            assert [row[owned] for row in found] == [theirs], table


async def nothing_is_seen_without_a_scope(database, scope, other, tables):
    async with database.outside() as tx:
        for table in tables:
            column = "id" if table in ("organizations", "users") else "organization_id"
            assert await rows(tx, f"SELECT {column} FROM {table}") == [], table


async def nothing_is_left_of_a_failed_transaction(database, scope, other, tables):
    backend = "SELECT pg_backend_pid() AS pid"
    async with database.scope(scope) as tx:
        before = await rows(tx, backend)
    with pytest.raises(psycopg.errors.DivisionByZero):
        await run(database, scope, "SELECT 1 / 0")
    async with database.scope(other) as tx:
        assert await rows(tx, backend) == before, "the test needs the same connection"
        assert [row["organization_id"] for row in await rows(tx, "SELECT * FROM jobs")] == [other.organization_id]
    async with database.outside() as tx:
        assert await rows(tx, backend) == before
        assert await rows(tx, "SELECT * FROM jobs") == []


async def foreign_rows_are_not_changed(database, scope, other, tables):
    async with database.scope(scope) as tx:
        where = f"WHERE organization_id = '{other.organization_id}'"
        for statement in ("UPDATE jobs SET priority = 9", "DELETE FROM memberships", "DELETE FROM environment_secrets"):
            assert (await tx.connection.execute(f"{statement} {where}")).rowcount == 0, statement


async def rows_are_not_moved_to_another_organization(database, scope, other, tables):
    mine = "INSERT INTO training_runs (organization_id, name, source_key) SELECT current_organization(), 'mine', 'mine'"
    move = f"UPDATE training_runs SET organization_id = '{other.organization_id}' WHERE name = 'mine'"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        await run(database, scope, mine, move)


async def rows_are_not_made_for_another_organization(database, scope, other, tables):
    spy = f"INSERT INTO environments (organization_id, name) VALUES ('{other.organization_id}', 'spy')"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        await run(database, scope, spy)


WALLS = [
    only_own_rows_are_seen,
    nothing_is_seen_without_a_scope,
    nothing_is_left_of_a_failed_transaction,
    foreign_rows_are_not_changed,
    rows_are_not_moved_to_another_organization,
    rows_are_not_made_for_another_organization,
]


@pytest.fixture
def one_connection(database_urls, on_loop):
    database = Database(database_urls["app"], most=1)
    on_loop(database.open())
    yield database
    on_loop(database.close())


@pytest.mark.parametrize("wall", WALLS)
def test_a_wall_holds(on_loop, one_connection, two_organizations, tables, wall):
    on_loop(wall(one_connection, two_organizations.a, two_organizations.b, tables))
    on_loop(wall(one_connection, two_organizations.b, two_organizations.a, tables))


@pytest.mark.parametrize("wall", WALLS)
def test_a_wall_falls_without_row_level_security(on_loop, one_connection, two_organizations, tables, wall, owner):
    for table in tables:
        owner.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        on_loop(wall(one_connection, two_organizations.a, two_organizations.b, tables))


def test_the_owner_of_the_tables_sees_nothing_either(database_urls, tables):
    with psycopg.connect(database_urls["owner"]) as connection:
        assert connection.execute("SELECT count(*) FROM rollouts").fetchone() == (0,)


def test_a_worker_sees_its_organization_only_and_no_people(on_loop, worker_database, two_organizations, tables):
    allowed = {"jobs", "evaluation_runs", "evaluation_trials", "environments", "environment_secrets", "artifacts"}
    allowed |= {"environment_versions", "evaluator_configurations", "rollouts"}

    async def seen(table):
        async with worker_database.scope(two_organizations.a) as tx:
            return [row["organization_id"] for row in await rows(tx, f"SELECT organization_id FROM {table}")]

    for table in set(tables) - {"organizations", "users"}:
        if table in allowed:
            assert on_loop(seen(table)) == [two_organizations.a.organization_id], table
        else:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                on_loop(seen(table))
    for people in ("SELECT email FROM users", "SELECT * FROM person_by_email('owner@a.example')"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            on_loop(run(worker_database, two_organizations.a, people))


def test_the_application_reads_no_password_hash_of_a_colleague(on_loop, app_database, two_organizations):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        on_loop(run(app_database, two_organizations.a, "SELECT password_hash FROM users"))


def test_nobody_may_truncate_or_change_the_schema(on_loop, app_database, worker_database, two_organizations, tables):
    for database in (app_database, worker_database):
        for statement in (
            *(f"TRUNCATE {table} CASCADE" for table in tables),
            "CREATE TABLE relaxforge.mine (id int)",
            "ALTER TABLE relaxforge.jobs DISABLE ROW LEVEL SECURITY",
            "SET ROLE relaxforge_owner",
            "UPDATE relaxforge.migrations SET sha256 = ''",
            "SELECT relaxforge.create_organization('mine', gen_random_uuid())",
            "SELECT relaxforge.all_organizations()",
            "SELECT relaxforge.reset_password('owner@a.example', 'mine')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                on_loop(run(database, two_organizations.a, statement))


def test_a_key_of_another_organization_is_no_key(on_loop, app_database, owner, two_organizations, tables):
    """Foreign keys do not ask row-level security, so the organization is part of each of them."""
    foreign = owner.execute(
        "SELECT id FROM environments WHERE organization_id = %s", (two_organizations.b.organization_id,)
    ).fetchone()[0]
    statement = (
        "INSERT INTO evaluator_configurations (organization_id, environment_id, name, attempt_count, agent_name, "
        f"agent_version, model) VALUES (current_organization(), '{foreign}', 'spy', 1, '', '', '{{}}')"
    )
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        on_loop(run(app_database, two_organizations.a, statement))


def test_every_key_between_tables_of_organizations_has_the_organization(owner):
    keys = owner.execute("""
        SELECT con.conname, rel.relname FROM pg_constraint con
        JOIN pg_class rel ON rel.oid = con.conrelid
        JOIN pg_attribute mine ON mine.attrelid = con.conrelid AND mine.attname = 'organization_id'
        WHERE rel.relnamespace = 'relaxforge'::regnamespace AND con.contype IN ('p', 'u', 'f')
          AND NOT mine.attnum = ANY (con.conkey)""").fetchall()
    assert sorted(keys) == [
        ("api_tokens_token_hash_key", "api_tokens"),  # 256 random bits: nobody can ask whether they exist
        ("browser_sessions_pkey", "browser_sessions"),
        ("browser_sessions_user_id_fkey", "browser_sessions"),
        ("memberships_user_id_fkey", "memberships"),
    ]


def test_a_name_may_exist_in_two_organizations(on_loop, app_database, two_organizations):
    async def create(scope):
        async with app_database.scope(scope) as tx:
            return await tx.one("environments.create", name="shop", description="")

    assert on_loop(create(two_organizations.a)) is not None
    assert on_loop(create(two_organizations.b)) is not None
    assert on_loop(create(two_organizations.a)) is None


def test_functions_that_look_across_organizations_are_fenced(owner):
    functions = owner.execute("""
        SELECT p.proname, r.rolname, p.proconfig, has_function_privilege('public', p.oid, 'EXECUTE') FROM pg_proc p
        JOIN pg_roles r ON r.oid = p.proowner
        WHERE p.pronamespace = 'relaxforge'::regnamespace AND p.prosecdef""").fetchall()
    assert functions
    for name, function_owner, settings, public in functions:
        assert (function_owner, settings) == ("relaxforge_definer", ["search_path=relaxforge, pg_temp"]), name
        assert not public, name


def test_privileges_are_what_they_need_to_be_and_no_more(owner):
    granted = owner.execute(
        """
        SELECT grantee, table_name, string_agg(privilege_type, ' ' ORDER BY privilege_type)
        FROM information_schema.role_table_grants
        WHERE table_schema = 'relaxforge' AND grantee LIKE 'relaxforge%%' AND grantee <> 'relaxforge_owner'
        GROUP BY 1, 2""",
        {},
    ).fetchall()
    found = {(role, table): set(privileges.split()) for role, table, privileges in granted}
    for (role, table), privileges in found.items():
        assert privileges <= {"SELECT", "INSERT", "UPDATE", "DELETE"}, (role, table)
    for role in ("relaxforge_app", "relaxforge_worker"):
        for table in ("artifacts", "environment_versions", "evaluator_configurations", "audit_log"):
            assert not found.get((role, table), set()) & {"UPDATE", "DELETE"}, (role, table)
        for table in ("evaluation_runs", "evaluation_trials", "rollouts", "training_runs", "training_steps", "jobs"):
            assert "DELETE" not in found.get((role, table), set()), (role, table)
