"""Signing in and out, and what a browser has to show."""

from __future__ import annotations

import dataclasses
import time

import psycopg
import pytest

from conftest import PASSWORD, PASSWORD_HASH
from relaxforge.store import identity
from relaxforge.web.config import WebConfig
from relaxforge.web.passwords import hash_password, one_time_password

API = "/api/v1"
NEW_PASSWORD = "a better password"


def sign_in(client, email, password=PASSWORD, **more):
    return client.post(f"{API}/sign-in", json={"email": email, "password": password, **more})


def with_one_time_password(workspace, email="new@example.org"):
    async def go(tx):
        await identity.add_member(tx, email=email, name="", password_hash=PASSWORD_HASH, role="member")

    workspace.run(workspace.a, go)
    return email


def change(url, sql):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql)


def test_a_person_signs_in_sees_themselves_and_signs_out(workspace):
    client = workspace.browser(workspace.a, "member")
    me = client.get(f"{API}/me").json()
    assert me["organizationName"] == "Organization a"
    assert me["role"] == "member"
    assert me["actions"] == ["export", "ingest", "publish", "read", "run"]
    cookie = dict(client.cookies)
    assert client.post(f"{API}/sign-out").status_code == 204
    assert not client.cookies
    stolen = workspace.client()
    stolen.cookies.update(cookie)
    assert stolen.get(f"{API}/me").status_code == 401


def test_an_unknown_account_and_a_wrong_password_cannot_be_told_apart(workspace):
    email = workspace.person(workspace.a, "member")
    answers, seconds = [], []
    for tried in (email, "nobody@example.org"):
        start = time.monotonic()
        answers.append(sign_in(workspace.client(), tried, "wrong password"))
        seconds.append(time.monotonic() - start)
    problems = [{**answer.json(), "instance": ""} for answer in answers]
    assert problems[0] == problems[1]
    assert problems[0]["status"] == 401
    assert min(seconds) > 0.35


def test_a_disabled_account_cannot_sign_in_and_its_sessions_end(workspace, database_urls):
    email = workspace.person(workspace.a, "member")
    client = workspace.client()
    assert sign_in(client, email).status_code == 200
    change(database_urls["admin"], f"UPDATE users SET disabled_at = now() WHERE email = '{email}'")
    assert client.get(f"{API}/me").status_code == 401
    assert sign_in(workspace.client(), email).status_code == 401


def test_too_many_attempts_on_an_account_are_refused_even_with_the_right_password(workspace):
    email = workspace.person(workspace.a, "member")
    client = workspace.client()
    for _ in range(workspace.config.sign_ins_per_account):
        sign_in(client, email, "wrong")
    refused = sign_in(client, email)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert sign_in(client, workspace.person(workspace.a, "viewer")).status_code == 200


class TestFromOneAddress:
    @pytest.fixture
    def web_config(self):
        return WebConfig(port=0, sign_ins_per_address=3)

    def test_too_many_attempts_are_refused_whatever_the_account(self, workspace):
        codes = [sign_in(workspace.client(), f"{name}@example.org", "wrong").status_code for name in "abcd"]
        assert codes == [401, 401, 401, 429]


def test_on_loopback_the_cookie_is_for_this_server_and_no_script(workspace):
    answer = sign_in(workspace.client(), workspace.person(workspace.a, "viewer"))
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("relaxforge=")
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Path=/" in cookie
    assert "Domain" not in cookie
    assert "Secure" not in cookie


class TestBehindHttps:
    @pytest.fixture
    def web_config(self):
        return WebConfig(port=0, public_url="https://workspace.example.org")

    def test_the_cookie_travels_encrypted_only_and_is_bound_to_the_host(self, workspace):
        client = workspace.client()
        answer = client.post(
            f"http://127.0.0.1:{workspace.port}{API}/sign-in",
            json={"email": workspace.person(workspace.a, "viewer"), "password": PASSWORD},
        )
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-relaxforge=")
        assert "; Secure" in cookie
        assert "max-age=" in answer.headers["strict-transport-security"]


def test_signing_in_again_replaces_the_session(workspace):
    client, email = workspace.client(), workspace.person(workspace.a, "viewer")
    sign_in(client, email)
    before = client.cookies["relaxforge"]
    sign_in(client, email)
    assert client.cookies["relaxforge"] != before
    old = workspace.client()
    old.cookies.set("relaxforge", before)
    assert old.get(f"{API}/me").status_code == 401


def test_a_session_ends_when_it_is_idle_and_in_any_case_after_its_longest_time(workspace, database_urls):
    client = workspace.browser(workspace.a)
    change(database_urls["admin"], "UPDATE browser_sessions SET expires_at = now() - interval '1 second'")
    assert client.get(f"{API}/me").status_code == 401
    busy = workspace.browser(workspace.a, "viewer")
    longest = workspace.config.session_absolute_s
    change(
        database_urls["admin"],
        f"UPDATE browser_sessions SET created_at = now() - interval '{longest + 60} seconds', "
        "last_seen_at = now() - interval '1 hour', expires_at = now() + interval '1 second'",
    )
    busy.get(f"{API}/me")
    with psycopg.connect(database_urls["admin"]) as connection:
        (left,) = connection.execute(
            "SELECT extract(epoch FROM max(expires_at) - now()) FROM browser_sessions"
        ).fetchone()
    assert left <= 1, "being used does not make it longer than its longest time"


def test_a_password_is_kept_as_argon2id_with_a_salt_and_nobody_has_a_default_one(workspace, database_urls):
    workspace.person(workspace.a, "member")
    with psycopg.connect(database_urls["admin"]) as connection:
        kept = [row[0] for row in connection.execute("SELECT password_hash FROM users WHERE email LIKE 'member%'")]
    assert kept[0].startswith("$argon2id$")
    assert PASSWORD not in kept[0]
    assert hash_password(PASSWORD) != hash_password(PASSWORD)
    made = {one_time_password() for _ in range(100)}
    assert len(made) == 100
    assert {len(password) for password in made} == {23}


def test_only_a_digest_of_the_cookie_is_kept(workspace, database_urls):
    client = workspace.client()
    sign_in(client, workspace.person(workspace.a, "viewer"))
    with psycopg.connect(database_urls["admin"]) as connection:
        (kept,) = connection.execute("SELECT string_agg(s::text, '') FROM browser_sessions s").fetchone()
    assert client.cookies["relaxforge"] not in kept


def test_a_one_time_password_has_to_be_changed_before_anything_else(workspace):
    email, client = with_one_time_password(workspace), workspace.client()
    me = sign_in(client, email).json()
    assert me["mustChangePassword"] is True
    client.headers["X-CSRF-Token"] = me["csrfToken"]
    refused = client.get(f"{API}/environments")
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:relaxforge:problem:password_change_required")
    short = client.post(f"{API}/password", json={"currentPassword": PASSWORD, "newPassword": "short"})
    assert (short.status_code, short.json()["errors"][0]["path"]) == (422, "body.newPassword")
    same = client.post(f"{API}/password", json={"currentPassword": PASSWORD, "newPassword": PASSWORD})
    assert same.status_code == 422
    wrong = client.post(f"{API}/password", json={"currentPassword": "wrong", "newPassword": NEW_PASSWORD})
    assert wrong.status_code == 403
    changed = client.post(f"{API}/password", json={"currentPassword": PASSWORD, "newPassword": NEW_PASSWORD})
    assert changed.json()["mustChangePassword"] is False
    assert client.get(f"{API}/environments").status_code == 200
    assert sign_in(workspace.client(), email).status_code == 401
    assert sign_in(workspace.client(), email, NEW_PASSWORD).status_code == 200


def test_a_changed_password_signs_out_every_other_browser(workspace):
    email = workspace.person(workspace.a, "member")
    other, client = workspace.client(), workspace.client()
    sign_in(other, email)
    client.headers["X-CSRF-Token"] = sign_in(client, email).json()["csrfToken"]
    answer = client.post(f"{API}/password", json={"currentPassword": PASSWORD, "newPassword": NEW_PASSWORD})
    assert answer.status_code == 200
    assert other.get(f"{API}/me").status_code == 401
    assert client.get(f"{API}/me").status_code == 200


def test_a_browser_has_to_show_the_token_of_the_page_for_whatever_changes_something(workspace):
    client = workspace.browser(workspace.a)
    token = client.headers.pop("X-CSRF-Token")
    body = {"name": "shop"}
    for given in ({}, {"X-CSRF-Token": "wrong"}, {"X-CSRF-Token": ""}):
        refused = client.post(f"{API}/environments", json=body, headers=given)
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:relaxforge:problem:csrf")
    assert client.get(f"{API}/environments").json()["items"] == []
    assert client.post(f"{API}/environments", json=body, headers={"X-CSRF-Token": token}).status_code == 201
    form = client.post(f"{API}/sign-out", data={"csrf_token": token})
    assert form.status_code == 204


def test_the_token_of_one_browser_is_no_good_in_another(workspace):
    one, other = workspace.browser(workspace.a), workspace.browser(workspace.a, "member")
    one.headers["X-CSRF-Token"] = other.headers["X-CSRF-Token"]
    assert one.post(f"{API}/environments", json={"name": "shop"}).status_code == 403


def test_a_request_that_a_foreign_page_sent_is_refused(workspace):
    client = workspace.browser(workspace.a)
    for site in ("cross-site", "same-site"):  # the latter is also another port of the same machine
        foreign = {"Sec-Fetch-Site": site}
        assert client.post(f"{API}/environments", json={"name": "x"}, headers=foreign).status_code == 403
        login = client.post(f"{API}/sign-in", json={"email": "x@example.org", "password": "x"}, headers=foreign)
        assert login.status_code == 403
        assert client.get(f"{API}/me", headers=foreign).status_code == 200


def test_signing_in_and_failing_to_are_in_the_audit_log(workspace):
    email = workspace.person(workspace.a, "member")
    sign_in(workspace.client(), email, "wrong")
    sign_in(workspace.client(), email)
    entries = workspace.browser(workspace.a).get(f"{API}/audit-log").json()["items"]
    mine = [(entry["action"], entry["remote"]) for entry in entries if entry["subject"] == email]
    assert mine == [("signed_in", "127.0.0.1"), ("sign_in_failed", "127.0.0.1")]
    assert PASSWORD not in str(entries)


def test_settings_that_make_no_sense_name_the_flag():
    from relaxforge.core.errors import ConfigError

    for name, value in (("port", 70_000), ("session_idle_s", 0.0), ("max_upload_mb", 0), ("public_url", "example.org")):
        with pytest.raises(ConfigError, match="--" + name.replace("_", "-")):
            dataclasses.replace(WebConfig(), **{name: value})
