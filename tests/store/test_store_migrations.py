"""What an administrator does: roles, migrations, the first organization."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.store import admin
from relaxforge.store.migrations import Migration, migrations, pending
from relaxforge.store.urls import with_parts


@pytest.fixture
def empty(postgres_server):
    """The administrator's URL of a database in which nothing was done."""
    name = f"relaxforge_empty_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield with_parts(postgres_server, dbname=name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_installing_again_changes_nothing(empty):
    names = tuple(f"{migration.number:04}_{migration.name}" for migration in migrations())
    assert admin.install(empty).applied == names
    again = admin.install(empty)
    assert (again.applied, again.app_url, again.worker_url) == ((), None, None)


def test_two_installations_at_once_are_one_after_the_other(empty):
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: admin.install(empty).applied, range(4)))
    assert sorted(map(len, done)) == [0, 0, 0, len(migrations())]


def test_numbers_of_migrations_have_no_gap_and_no_double():
    assert [migration.number for migration in migrations()] == list(range(1, len(migrations()) + 1))


def test_a_changed_or_unknown_migration_is_refused(empty):
    admin.install(empty)
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute("UPDATE relaxforge.migrations SET sha256 = repeat('0', 64) WHERE number = 1")
        with pytest.raises(
            ConfigError, match=r"migration 0001_first was applied with other content \(SHA-256 000000000000"
        ):
            admin.install(empty)
        connection.execute("INSERT INTO relaxforge.migrations (number, name, sha256) VALUES (9999, 'later', '')")
        with pytest.raises(ConfigError, match="has migration 9999, which this version of RelaxForge does not know"):
            admin.install(empty)


def test_only_what_is_missing_is_pending():
    known = [Migration(1, "one", "a", b""), Migration(2, "two", "b", b"")]
    assert pending({1: "a"}, known) == known[1:]


def test_a_migration_that_fails_leaves_nothing(empty, monkeypatch):
    broken = Migration(len(migrations()) + 1, "broken", "x", b"CREATE TABLE half (id int); SELECT 1 / 0")
    monkeypatch.setattr(admin, "migrations", lambda: (*migrations(), broken))
    with pytest.raises(psycopg.errors.DivisionByZero):
        admin.install(empty)
    with psycopg.connect(empty) as connection:
        assert connection.execute("SELECT count(*) FROM relaxforge.migrations").fetchone() == (len(migrations()),)
        assert connection.execute("SELECT to_regclass('relaxforge.half')").fetchone() == (None,)


def test_somebody_who_may_not_is_told_who_may(database_urls):
    with pytest.raises(
        ConfigError, match=r"the administrator may not do this: .*connect as a superuser, or as a role with"
    ):
        admin.install(database_urls["app"])


def test_a_server_that_is_not_there_is_an_error_and_no_traceback(tmp_path):
    with pytest.raises(StorageError, match="the database cannot be reached"):
        admin.install(f"postgresql://somebody@/nothing?host={tmp_path}")


def test_an_address_that_is_none_is_not_repeated():
    with pytest.raises(ConfigError) as caught:
        with_parts("postgresql://me:secret@[", user="x")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("password", ["p@ss/w:rd?", "ü %41", "a b'c\\"])
def test_addresses_survive_odd_passwords(password):
    url = with_parts("host=/tmp/with-space port=5433", user="a@b", password=password, dbname="x/y")
    found = psycopg.conninfo.conninfo_to_dict(url)
    assert (found["user"], found["password"], found["dbname"]) == ("a@b", password, "x/y")
    assert (found["host"], found["port"]) == ("/tmp/with-space", "5433")
