"""What every request passes and every answer has, whatever the route."""

from __future__ import annotations

import re
import socket

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from relaxforge.web.gate import BEFORE_PASSWORD, PUBLIC
from relaxforge.web.live import frame

API = "/api/v1"
SOME_ID = "00000000-0000-4000-8000-000000000000"


def addresses(app):
    """(method, address) of every route there is, pages and API, with something in place of each parameter."""
    for context in iter_route_contexts(app.routes):
        for method in sorted(context.methods or ()):
            yield method, re.sub(r"\{[^}]*\}", SOME_ID, context.path)


def test_nobody_gets_anything_without_credentials(workspace):
    client, seen = workspace.client(), 0
    for method, address in addresses(workspace.app):
        if address in PUBLIC or address.startswith("/static"):
            continue
        seen += 1
        answer = client.request(method, address)
        if address.startswith("/api/") or method != "GET":
            assert answer.status_code == 401, (method, address)
        else:
            assert (answer.status_code, answer.headers["location"][:14]) == (303, "/sign-in?next="), address
        assert client.request(method, address, headers={"Authorization": "Bearer rf_wrong"}).status_code in (401, 303)
    assert seen > 50


def test_an_address_that_does_not_exist_is_not_told_to_strangers(workspace):
    assert workspace.client().get(f"{API}/nothing").status_code == 401
    assert workspace.browser(workspace.a).get(f"{API}/nothing").status_code == 404
    assert workspace.client().get(f"{API}/sign-in/").status_code == 401


def test_every_answer_has_the_security_headers(workspace):
    client = workspace.browser(workspace.a)
    for answer in (
        client.get(f"{API}/me"),
        client.get("/health"),
        client.get("/sign-in"),
        client.get(f"{API}/nothing"),
        workspace.client().get(f"{API}/me"),
        workspace.client().get("/environments"),
        client.post(f"{API}/environments", content=b"{"),
    ):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "private, no-store"


def test_every_error_is_a_problem_document_with_the_path_of_the_field(workspace):
    client = workspace.browser(workspace.a)
    answers = {
        400: client.get(f"{API}/trials?limit=0"),
        401: workspace.client().get(f"{API}/me"),
        403: workspace.browser(workspace.a, "viewer").post(f"{API}/environments", json={"name": "x"}),
        404: client.get(f"{API}/environments/{SOME_ID}"),
        405: client.delete(f"{API}/me"),
        413: client.post(f"{API}/environments", content=b"x" * 2_000_000),
        422: client.post(f"{API}/environments", json={"name": ""}),
    }
    for status, answer in answers.items():
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        problem = answer.json()
        assert problem["status"] == status
        assert problem["type"].startswith("urn:relaxforge:problem:")
        assert problem["instance"].startswith("urn:uuid:")
        assert problem["title"]
        assert problem["detail"]
    assert answers[400].json()["errors"][0]["path"] == "query.limit"
    assert answers[422].json()["errors"][0]["path"] == "body.name"


@pytest.mark.parametrize(
    ("content", "path"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b'{"name": "x", "nam": 1}', "body.nam"),
        (b'{"name": "a\\u0000b"}', "body"),
        (b'{"name": "\\ud800"}', "body"),
        (b'{"name": 5}', "body.name"),
        (b"null", "body"),
    ],
)
def test_a_body_that_cannot_be_read_says_where(workspace, content, path):
    client = workspace.browser(workspace.a)
    answer = client.post(f"{API}/environments", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"].startswith(path)


def test_an_unknown_parameter_is_refused_and_the_known_ones_are_named(workspace):
    client = workspace.browser(workspace.a)
    answer = client.get(f"{API}/trials?pageOffset=3")
    assert answer.status_code == 400
    assert "unknown query parameter 'pageOffset'; there are cursor, environmentId," in answer.json()["detail"]
    assert "there are none here" in client.get(f"{API}/me?x=1").json()["detail"]


@pytest.mark.parametrize("cursor", ["x", "eA==", "MjAyNg==", "%00", "%ff"])
def test_a_cursor_that_was_not_handed_out_is_refused(workspace, cursor):
    client = workspace.browser(workspace.a)
    for path in ("trials", "environments", "rollouts", "members"):
        assert client.get(f"{API}/{path}?cursor={cursor}").status_code == 400


def test_lists_are_read_page_by_page_and_lose_nothing(workspace):
    client = workspace.browser(workspace.a)
    names = [f"shop {number}" for number in range(5)]
    for name in names:
        client.post(f"{API}/environments", json={"name": name}).raise_for_status()
    seen, cursor = [], {}
    while True:
        page = client.get(f"{API}/environments", params={"limit": 2, **cursor}).json()
        seen += [item["name"] for item in page["items"]]
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert seen == names[::-1]


def test_a_fault_of_ours_is_an_id_for_the_answer_and_a_traceback_for_the_log(workspace):
    async def broken():
        raise ZeroDivisionError("a secret detail")

    workspace.app.add_api_route("/api/v1/broken", broken)
    answer = workspace.browser(workspace.a).get(f"{API}/broken")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "secret" not in answer.text
    assert "Zero" not in answer.text
    request_id = answer.json()["instance"].removeprefix("urn:uuid:")
    (line,) = [line for line in workspace.events_log.read_text().splitlines() if request_id in line]
    assert "ZeroDivisionError: a secret detail" in line
    assert "Traceback" in line


def test_half_an_answer_breaks_the_connection(workspace):
    from starlette.responses import StreamingResponse

    async def halves():
        yield b"x" * 100
        raise RuntimeError("no more")

    async def half():
        return StreamingResponse(halves(), headers={"content-length": "200"})

    workspace.app.add_api_route("/api/v1/half", half)
    with pytest.raises(httpx.RemoteProtocolError):
        workspace.browser(workspace.a).get(f"{API}/half")


def test_two_gigabytes_are_refused_before_they_are_read(workspace):
    client = workspace.browser(workspace.a)
    environment = client.post(f"{API}/environments", json={"name": "shop"}).json()["id"]
    head = (
        f"POST {API}/environments/{environment}/versions HTTP/1.1\r\nHost: x\r\nContent-Length: {2 << 30}\r\n"
        f"Cookie: relaxforge={client.cookies['relaxforge']}\r\nX-CSRF-Token: {client.headers['X-CSRF-Token']}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", workspace.port), 10) as connection:
        connection.sendall(head.encode())
        said = b""
        while chunk := connection.recv(65536):
            said += chunk
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"larger than 80 MiB" in said


def test_a_body_of_unknown_length_is_refused_as_soon_as_it_is_too_long(workspace):
    client = workspace.browser(workspace.a)

    def endless():
        for _ in range(64):
            yield b" " * 65536

    try:
        answer = client.post(f"{API}/environments", content=endless(), headers={"Content-Type": "application/json"})
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        return  # It was refused so early that the connection was closed while the client still sent.
    assert answer.status_code == 413


def test_a_stranger_sends_a_large_body_and_is_refused_by_its_size(workspace):
    assert workspace.client().post(f"{API}/sign-in", content=b"x" * 2_000_000).status_code == 413


def test_health_needs_nothing_and_says_nothing(workspace):
    assert workspace.client().get("/health").json() == {"status": "ok"}


def test_before_a_new_password_only_the_way_to_it_is_open():
    assert all(path in BEFORE_PASSWORD for path in ("/api/v1/password", "/api/v1/sign-out", "/password"))


def test_an_event_keeps_its_lines_apart():
    assert frame("trial", "a\r\nb") == "event: trial\ndata: a\ndata: \ndata: b\n\n"
    assert frame("end", "") == "event: end\ndata: \n\n"
