"""People, roles, browser sessions and API tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from relaxforge.core.errors import ConfigError
from relaxforge.store import admin, audit, identity
from relaxforge.store.database import Scope
from relaxforge.store.errors import ConflictError, InvalidError, MissingError

HOUR, WEEK = timedelta(hours=1), timedelta(days=7)
NEWEST = {"before": None, "limit": 50}
TOMORROW = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def inside(app_database, on_loop, two_organizations):
    """``inside(function, *arguments)`` calls a function of the store as the owner of organization a."""

    def call(function, *arguments, scope=two_organizations.a, **values):
        async def go():
            async with app_database.scope(scope) as tx:
                return await function(tx, *arguments, **values)

        return on_loop(go())

    return call


@pytest.fixture
def outside(app_database, on_loop):
    def call(function, *arguments, **values):
        async def go():
            async with app_database.outside() as tx:
                return await function(tx, *arguments, **values)

        return on_loop(go())

    return call


@pytest.fixture
def owner(database_urls):
    with psycopg.connect(database_urls["admin"], autocommit=True) as connection:
        yield connection.execute


def test_a_person_is_found_by_e_mail_with_their_organizations(outside, two_organizations):
    person = outside(identity.find_person, "Owner@A.example")
    assert (person["user_id"], person["password_hash"]) == (two_organizations.a.user_id, "no password")
    assert [tuple(place.values()) for place in person["memberships"]] == [
        (two_organizations.a.organization_id, "Organization a", "owner")
    ]
    assert outside(identity.find_person, "nobody@a.example") is None
    assert outside(identity.find_person, "nul\0@a.example\ud800") is None


def test_a_browser_session_opens_lives_with_use_and_ends(inside, outside, owner, two_organizations):
    a = two_organizations.a
    cookie = identity.digest("cookie")
    inside(identity.open_session, cookie, a.user_id, "csrf", HOUR)
    found = outside(identity.find_session, cookie, idle=HOUR, longest=WEEK)
    assert (found["user_id"], found["organization_id"], found["role"]) == (a.user_id, a.organization_id, "owner")
    assert (found["organization_name"], found["csrf_token"]) == ("Organization a", "csrf")
    owner(
        "UPDATE browser_sessions SET last_seen_at = now() - interval '30 minutes', expires_at = now() + interval '1 s'"
    )
    later = outside(identity.find_session, cookie, idle=HOUR, longest=WEEK)
    assert later["expires_at"] > datetime.now(UTC) + timedelta(minutes=59), "use moves the end"
    outside(identity.end_session, cookie)
    assert outside(identity.find_session, cookie, idle=HOUR, longest=WEEK) is None


def test_a_browser_session_ends_at_the_latest_a_while_after_sign_in(inside, outside, owner, two_organizations):
    cookie = identity.digest("cookie")
    inside(identity.open_session, cookie, two_organizations.a.user_id, "csrf", HOUR)
    owner("UPDATE browser_sessions SET created_at = now() - interval '7 days', last_seen_at = now() - interval '9 min'")
    found = outside(identity.find_session, cookie, idle=WEEK, longest=WEEK)
    assert found["expires_at"] <= datetime.now(UTC) + HOUR
    owner("UPDATE browser_sessions SET expires_at = now()")
    assert outside(identity.find_session, cookie, idle=HOUR, longest=WEEK) is None


def test_a_session_cannot_be_opened_in_an_organization_one_does_not_belong_to(inside, two_organizations):
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        inside(identity.open_session, identity.digest("x"), two_organizations.b.user_id, "csrf", HOUR)


def test_a_disabled_account_has_no_sessions_and_no_tokens(inside, outside, owner, two_organizations):
    user_id = two_organizations.a.user_id
    inside(identity.open_session, identity.digest("cookie"), user_id, "csrf", HOUR)
    _, token = inside(identity.create_token, user_id=user_id, name="ci", scopes=["read"], expires_at=TOMORROW)
    owner("UPDATE users SET disabled_at = now()")
    assert outside(identity.find_session, identity.digest("cookie"), idle=HOUR, longest=WEEK) is None
    assert outside(identity.find_token, identity.digest(token)) is None
    assert outside(identity.find_person, "owner@a.example")["disabled"]


def test_a_token_says_whose_it_is_until_it_is_revoked_or_expires(inside, outside, owner, two_organizations):
    a = two_organizations.a
    row, token = inside(
        identity.create_token, user_id=a.user_id, name="ci", scopes=["run", "read"], expires_at=TOMORROW
    )
    assert token.startswith("rf_")
    assert len(token) >= 45
    found = outside(identity.find_token, identity.digest(token))
    assert (found["organization_id"], found["user_id"], found["scopes"]) == (
        a.organization_id,
        a.user_id,
        ["read", "run"],
    )
    listed = inside(identity.list_tokens, **NEWEST)
    assert [(item["id"], item["last_used_at"] is not None, item["email"]) for item in listed] == [
        (row["id"], True, "owner@a.example")
    ]
    assert inside(identity.list_tokens, **NEWEST, scope=two_organizations.b) == []
    with pytest.raises(MissingError):
        inside(identity.revoke_token, row["id"], scope=two_organizations.b)
    owner("UPDATE api_tokens SET expires_at = now()")
    assert outside(identity.find_token, identity.digest(token)) is None
    owner("UPDATE api_tokens SET expires_at = now() + interval '1 day'")
    inside(identity.revoke_token, row["id"])
    assert outside(identity.find_token, identity.digest(token)) is None
    assert token not in str(owner("SELECT * FROM api_tokens").fetchall())


@pytest.mark.parametrize(("name", "scopes"), [("", ["read"]), ("ci", []), ("ci", ["read", "manage"])])
def test_a_token_without_name_or_with_unknown_scopes_is_refused(inside, two_organizations, name, scopes):
    with pytest.raises(InvalidError):
        inside(
            identity.create_token, user_id=two_organizations.a.user_id, name=name, scopes=scopes, expires_at=TOMORROW
        )


def test_a_member_with_an_account_keeps_their_password(inside, outside, two_organizations):
    user_id, created = inside(
        identity.add_member, email=" Owner@B.example ", name="Mallory", password_hash="stolen", role="viewer"
    )
    assert (user_id, created) == (two_organizations.b.user_id, False)
    person = outside(identity.find_person, "owner@b.example")
    assert (person["name"], person["password_hash"]) == ("Owner b", "no password")
    assert [place["role"] for place in person["memberships"]] == ["viewer", "owner"]
    with pytest.raises(ConflictError, match="is a member already"):
        inside(identity.add_member, email="owner@b.example", name="", password_hash="x", role="viewer")


def test_members_are_listed_changed_and_removed(inside, outside, two_organizations):
    user_id, created = inside(identity.add_member, email="new@a.example", name="New", password_hash="h", role="viewer")
    assert created
    inside(identity.change_role, user_id, "member")
    members = inside(identity.list_members, **NEWEST)
    assert [(member["email"], member["role"]) for member in members] == [
        ("new@a.example", "member"),
        ("owner@a.example", "owner"),
    ]
    _, token = inside(identity.create_token, user_id=user_id, name="ci", scopes=["read"], expires_at=TOMORROW)
    inside(identity.remove_member, user_id)
    assert outside(identity.find_token, identity.digest(token)) is None
    assert outside(identity.find_person, "new@a.example")["memberships"] == []
    for change in (identity.remove_member, lambda tx, user: identity.change_role(tx, user, "member")):
        with pytest.raises(MissingError):
            inside(change, two_organizations.b.user_id)
    with pytest.raises(InvalidError, match="one of viewer, member, owner"):
        inside(identity.change_role, two_organizations.a.user_id, "admin")


def test_an_organization_keeps_an_owner(inside, two_organizations):
    for change in (identity.remove_member, lambda tx, user: identity.change_role(tx, user, "viewer")):
        with pytest.raises(ConflictError, match="no owner any more"):
            inside(change, two_organizations.a.user_id)
    inside(identity.add_member, email="second@a.example", name="", password_hash="h", role="owner")
    inside(identity.change_role, two_organizations.a.user_id, "viewer")


def test_everybody_changes_their_own_password_only(inside, outside, two_organizations):
    a = two_organizations.a
    inside(identity.open_session, identity.digest("cookie"), a.user_id, "csrf", HOUR)
    with pytest.raises(InvalidError):
        inside(identity.set_password, two_organizations.b.user_id, "mine")
    inside(identity.set_password, a.user_id, "new hash")
    assert outside(identity.find_person, "owner@a.example")["password_hash"] == "new hash"
    assert outside(identity.find_person, "owner@b.example")["password_hash"] == "no password"
    assert outside(identity.find_session, identity.digest("cookie"), idle=HOUR, longest=WEEK) is None


def test_an_administrator_gives_a_password_for_once(inside, outside, database_urls, two_organizations):
    inside(identity.open_session, identity.digest("cookie"), two_organizations.a.user_id, "csrf", HOUR)
    admin.reset_password(database_urls["admin"], email="Owner@a.example", password_hash="once")
    person = outside(identity.find_person, "owner@a.example")
    assert (person["password_hash"], person["must_change_password"]) == ("once", True)
    assert outside(identity.find_session, identity.digest("cookie"), idle=HOUR, longest=WEEK) is None
    with pytest.raises(ConfigError, match=r"nobody has the e-mail address nobody@a\.example"):
        admin.reset_password(database_urls["admin"], email="nobody@a.example", password_hash="once")


def test_name_and_limit_of_an_organization_are_changed(inside, two_organizations):
    assert inside(identity.change_organization, most_running_jobs=7)["most_running_jobs"] == 7
    changed = inside(identity.change_organization, name="A Ltd")
    assert (changed["name"], changed["most_running_jobs"]) == ("A Ltd", 7)
    assert inside(identity.get_organization, scope=two_organizations.b)["name"] == "Organization b"
    for wrong in ({"name": " "}, {"most_running_jobs": 0}):
        with pytest.raises(InvalidError):
            inside(identity.change_organization, **wrong)


def test_what_was_done_is_listed_newest_first_and_page_by_page(inside, two_organizations):
    for number in range(3):
        inside(audit.write, "exported", f"rollouts {number}", {"text": "nul \0 and \ud800"}, "127.0.0.1")
    inside(audit.write, "exported", "elsewhere", {}, "", scope=two_organizations.b)
    first = inside(audit.list_entries, before=None, limit=2)
    rest = inside(audit.list_entries, before=(first[-1]["created_at"], first[-1]["id"]), limit=2)
    assert [entry["subject"] for entry in first + rest] == ["rollouts 2", "rollouts 1", "rollouts 0"]
    assert (first[0]["email"], first[0]["detail"]) == ("owner@a.example", {"text": "nul \ufffd and \ufffd"})


def test_an_entry_without_a_person_is_kept(inside, two_organizations):
    nobody = Scope(two_organizations.a.organization_id)
    inside(audit.write, "sign_in_failed", "owner@a.example", {}, "127.0.0.1", scope=nobody)
    assert inside(audit.list_entries, before=None, limit=1)[0]["user_id"] is None
