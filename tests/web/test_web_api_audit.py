"""What people did stands in the audit log: every deed there is, with who did it; nobody can change an entry."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

import relaxforge.web
from conftest import PASSWORD, packed

API = "/api/v1"
WRITTEN = re.compile(r'audit\.write\(\s*\w+,\s*"(\w+)"')


def deeds():
    """The names of all entries that the application writes."""
    sources = Path(relaxforge.web.__file__).parent.rglob("*.py")
    return {name for source in sources for name in WRITTEN.findall(source.read_text())}


def test_every_deed_is_noted_with_who_did_it(workspace):
    owner = workspace.browser(workspace.a)

    def do(method, path, status=(200, 201, 202, 204), **more):
        answer = owner.request(method, API + path, **more)
        assert answer.status_code in status, (path, answer.text)
        return answer.json() if answer.content else None

    environment = do("POST", "/environments", json={"name": "shop"})["id"]
    version = do("POST", f"/environments/{environment}/versions", files={"bundle": packed()})["id"]
    body = {"environmentId": environment, "name": "c", "attemptCount": 1, "model": {"engine": "scripted"}}
    configuration = do("POST", "/evaluator-configurations", json=body)["id"]
    asked = {"environmentVersionId": version, "evaluatorConfigurationId": configuration}
    run = do("POST", "/evaluation-runs", json=asked)["evaluationRunId"]
    do("POST", f"/evaluation-runs/{run}/reset", json={"mode": "new_world"})
    do("POST", f"/evaluation-runs/{run}/cancel", json={"mode": "at_once"})
    do("PUT", f"/environments/{environment}/secrets/KEY", json={"value": "a hidden value"})
    do("DELETE", f"/environments/{environment}/secrets/KEY")
    do("GET", "/rollouts/counts")
    assert owner.get(f"{API}/rollouts").status_code == 200
    token = do("POST", "/tokens", json={"name": "t", "scopes": ["read"]})["id"]
    do("DELETE", f"/tokens/{token}")
    member = do("POST", "/members", json={"email": "ada@example.org", "role": "viewer"})["id"]
    do("PUT", f"/members/{member}", json={"role": "member"})
    do("DELETE", f"/members/{member}")
    do("PATCH", "/organization", json={"mostRunningJobs": 3})
    do("POST", "/training-runs", content=b'{"sourceKey": "k", "name": "n"}')
    stranger = workspace.client()
    email = workspace.person(workspace.a, "member")
    assert stranger.post(f"{API}/sign-in", json={"email": email, "password": "wrong"}).status_code == 401
    me = stranger.post(f"{API}/sign-in", json={"email": email, "password": PASSWORD}).json()
    stranger.headers["X-CSRF-Token"] = me["csrfToken"]
    changed = stranger.post(f"{API}/password", json={"currentPassword": PASSWORD, "newPassword": "another password"})
    stranger.headers["X-CSRF-Token"] = changed.json()["csrfToken"]
    assert stranger.post(f"{API}/sign-out").status_code == 204

    entries = do("GET", "/audit-log", params={"limit": 200})["items"]
    assert {entry["action"] for entry in entries} == deeds()
    assert len(deeds()) > 15
    assert all(entry["remote"] == "127.0.0.1" for entry in entries)
    assert "a hidden value" not in str(entries)


def test_an_entry_can_be_neither_changed_nor_deleted(workspace, database_urls):
    workspace.browser(workspace.a)
    with psycopg.connect(database_urls["app"], autocommit=True) as connection:
        for statement in ("UPDATE relaxforge.audit_log SET action = 'nothing'", "DELETE FROM relaxforge.audit_log"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
