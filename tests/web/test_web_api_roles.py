"""Who may do what: roles of people, scopes of tokens, and owners' tools."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from fastapi.routing import iter_route_contexts

from conftest import packed
from relaxforge.web.caller import ALLOWED, May

API = "/api/v1"

NEEDS = {
    "read": lambda c, e: c.get(f"{API}/trials"),
    "export": lambda c, e: c.get(f"{API}/rollouts"),
    "publish": lambda c, e: c.post(f"{API}/environments/{e.environment_id}/versions", files={"bundle": packed(n="1")}),
    "run": lambda c, e: c.post(f"{API}/evaluation-runs/{e.run_id}/reset", json={"mode": "new_workspace"}),
    "ingest": lambda c, e: c.post(f"{API}/training-runs", content=b'{"sourceKey": "k", "name": "n"}'),
    "manage": lambda c, e: c.get(f"{API}/audit-log"),
}


@pytest.mark.parametrize("role", ["viewer", "member", "owner"])
def test_a_role_may_do_what_it_is_for_and_nothing_else(workspace, role):
    evidence = workspace.evidence(workspace.a)
    client = workspace.browser(workspace.a, role)
    done = {action for action, ask in NEEDS.items() if ask(client, evidence).status_code < 300}
    assert done == ALLOWED[role]
    assert {ask(client, evidence).status_code for action, ask in NEEDS.items() if action not in done} <= {403}


@pytest.mark.parametrize("scope", ["read", "export", "run", "publish", "ingest"])
def test_a_token_may_do_what_its_scopes_say(workspace, scope):
    evidence = workspace.evidence(workspace.a)
    client = workspace.token(workspace.a, scope)
    answers = {action: ask(client, evidence) for action, ask in NEEDS.items()}
    assert {action for action, answer in answers.items() if answer.status_code < 300} == {scope}
    assert answers["manage"].status_code == 403
    lacking = next(action for action in ("read", "run") if action != scope)
    assert f"lacks the scope {lacking!r}" in answers[lacking].json()["detail"]


def test_a_token_never_may_more_than_its_person(workspace):
    evidence = workspace.evidence(workspace.a)
    client = workspace.token(workspace.a, "read", "publish", "run", role="viewer")
    assert NEEDS["read"](client, evidence).status_code == 200
    assert NEEDS["publish"](client, evidence).status_code == 403


def test_every_route_says_what_its_caller_must_be_allowed(workspace):
    """A route that forgets to would be open to every token of the organization."""

    def needs(dependant):
        found = {d.call.action for d in dependant.dependencies if isinstance(d.call, May)}
        return found.union(*(needs(inner) for inner in dependant.dependencies))

    account = {f"{API}/sign-in", f"{API}/sign-out", f"{API}/me", f"{API}/password"}
    routes = [context for context in iter_route_contexts(workspace.app.routes) if str(context.path).startswith(API)]
    ours = [context for context in routes if hasattr(context, "dependant") and context.path not in account]
    assert len(ours) > 30
    assert [context.path for context in ours if not needs(context.dependant)] == []


def test_a_program_needs_no_token_of_a_page(workspace):
    client = workspace.token(workspace.a, "publish")
    assert client.post(f"{API}/environments", json={"name": "shop"}).status_code == 201


def test_a_token_is_shown_once_works_and_can_be_revoked(workspace):
    owner = workspace.browser(workspace.a)
    made = owner.post(f"{API}/tokens", json={"name": "nightly", "scopes": ["read"], "expiresInDays": 1})
    assert made.status_code == 201
    token = made.json()["token"]
    assert token.startswith("rf_")
    assert token not in owner.get(f"{API}/tokens").text
    assert "token_created" in owner.get(f"{API}/audit-log").text
    assert token not in owner.get(f"{API}/audit-log").text
    program = workspace.client(Authorization=f"Bearer {token}")
    assert program.get(f"{API}/me").json()["actions"] == ["read"]
    assert owner.delete(f"{API}/tokens/{made.json()['id']}").status_code == 204
    assert program.get(f"{API}/me").status_code == 401


def test_an_expired_token_is_no_token(workspace, database_urls):
    program = workspace.token(workspace.a, "read")
    assert program.get(f"{API}/me").status_code == 200
    with psycopg.connect(database_urls["admin"], autocommit=True) as connection:
        connection.execute("UPDATE api_tokens SET expires_at = now() - interval '1 second'")
    assert program.get(f"{API}/me").status_code == 401


def test_a_token_cannot_change_a_password(workspace):
    program = workspace.token(workspace.a, "read")
    answer = program.post(f"{API}/password", json={"currentPassword": "x", "newPassword": "a longer password"})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["manage"]},
        {"name": "", "scopes": ["read"]},
        {"name": "x", "scopes": ["read"], "expiresInDays": 10_000},
        {"name": "x", "scopes": ["read"], "expiresInDays": 0},
    ],
)
def test_a_token_that_makes_no_sense_is_refused(workspace, body):
    assert workspace.browser(workspace.a).post(f"{API}/tokens", json=body).status_code == 422


def test_an_owner_adds_a_person_who_signs_in_once_and_chooses_a_password(workspace):
    owner = workspace.browser(workspace.a)
    added = owner.post(f"{API}/members", json={"email": "Ada@Example.org", "role": "viewer"}).json()
    client = workspace.client()
    asked = {"email": "ada@example.org", "password": added["oneTimePassword"]}
    assert client.post(f"{API}/sign-in", json=asked).json()["mustChangePassword"] is True
    again = owner.post(f"{API}/members", json={"email": "ada@example.org", "role": "viewer"})
    assert again.status_code == 409


def test_a_new_role_counts_at_once_and_a_removed_member_is_out(workspace):
    owner, other = workspace.browser(workspace.a), workspace.browser(workspace.a, "member")
    user_id = other.get(f"{API}/me").json()["userId"]
    assert owner.put(f"{API}/members/{user_id}", json={"role": "viewer"}).status_code == 204
    assert other.post(f"{API}/environments", json={"name": "x"}).status_code == 403
    assert owner.delete(f"{API}/members/{user_id}").status_code == 204
    assert other.get(f"{API}/me").status_code == 401
    actions = [entry["action"] for entry in owner.get(f"{API}/audit-log").json()["items"]]
    assert actions[:2] == ["member_removed", "role_changed"]


def test_an_organization_keeps_an_owner(workspace):
    owner = workspace.browser(workspace.b)
    members = owner.get(f"{API}/members").json()["items"]
    mine = owner.get(f"{API}/me").json()["userId"]
    for member in members:
        if member["id"] != mine:
            assert owner.delete(f"{API}/members/{member['id']}").status_code == 204
    assert owner.delete(f"{API}/members/{mine}").status_code == 409
    assert owner.put(f"{API}/members/{mine}", json={"role": "viewer"}).status_code == 409


def test_an_owner_changes_limits(workspace):
    owner = workspace.browser(workspace.a)
    assert owner.patch(f"{API}/organization", json={"mostRunningJobs": 7}).json()["mostRunningJobs"] == 7
    assert owner.patch(f"{API}/organization", json={"mostRunningJobs": 0}).status_code == 422
    assert workspace.browser(workspace.a, "member").patch(f"{API}/organization", json={}).status_code == 403


def test_moments_are_utc_with_milliseconds(workspace):
    created = workspace.browser(workspace.a).get(f"{API}/organization").json()["createdAt"]
    assert created.endswith("Z")
    assert len(created) == len("2026-12-01T09:30:00.000Z")
    assert abs((datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds()) < 600
