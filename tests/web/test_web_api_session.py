"""Signing in and out, and what a browser has to show."""

from __future__ import annotations

PASSWORD = "a password for tests"


def sign_in(client, email, password=PASSWORD):
    return client.post("/api/v1/sign-in", json={"email": email, "password": password})


def test_a_person_signs_in_sees_themselves_and_signs_out(workspace):
    client = workspace.browser(workspace.a, "member")
    me = client.get("/api/v1/me").json()
    assert me["organizationName"] == "Organization a"
    assert me["role"] == "member"
    assert me["actions"] == ["export", "ingest", "publish", "read", "run"]
    assert client.post("/api/v1/sign-out").status_code == 204
    assert client.get("/api/v1/me").status_code == 401
