"""What arrives over HTTP is believed only if every byte, line and digest is as announced."""

import gzip
import hashlib
import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from relaxforge.core.errors import ConfigError
from relaxforge.export.errors import TransferError
from relaxforge.export.fetch import Part, fetch, open_workspace

BODY = b'{"a":1}\n{"a":2}\n'


def announced(body=BODY, rows=2, **changes):
    headers = {"X-Content-Length": len(body), "X-Rollout-Count": rows, "X-Rollout-Total": 5,
               "X-Content-SHA256": hashlib.sha256(body).hexdigest()}  # fmt: skip
    return {**headers, **{name.replace("_", "-"): value for name, value in changes.items()}}


@pytest.fixture
def answering():
    """A server that gives one answer to everything: ``answering(status, headers, body)`` is its URL."""
    servers = []

    def serve(status, headers, body):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.01}).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def got(url):
    into, seen = io.BytesIO(), []
    with open_workspace(url, "token") as client:
        part = fetch(client, {"kind": "all"}, into, lambda came, size: seen.append((came, size)))
    return part, into.getvalue(), seen


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_a_sound_answer_is_written_and_described(answering):
    part, data, seen = got(answering(200, announced(X_Next_Cursor="c", X_Rollout_Left_Out=1), BODY))
    assert (part, data) == (Part(rows=2, left_out=1, total=5, size=len(BODY), next_cursor="c"), BODY)
    assert seen[-1] == (len(BODY), len(BODY))


def test_a_packed_answer_is_compared_with_what_it_holds(answering):
    packed = gzip.compress(BODY)
    headers = {**announced(), "Content-Encoding": "gzip", "Content-Length": len(packed)}
    assert got(answering(200, headers, packed))[1] == BODY


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (announced(), BODY[:-4]),
        (announced(), BODY + b"{}\n"),
        (announced(), BODY.replace(b"1", b"7")),
        (announced(rows=3), BODY),
    ],
    ids=["cut", "longer", "other bytes", "other count"],
)
def test_what_is_not_as_announced_is_damaged(answering, headers, body):
    with pytest.raises(TransferError, match=r"the export was damaged on its way: .* try again"):
        got(answering(200, headers, body))


def test_a_connection_that_breaks_off_is_an_error(answering):
    with pytest.raises(TransferError, match="did not send all of the export"):
        got(answering(200, {**announced(), "Content-Length": len(BODY)}, BODY[:5]))


def test_an_answer_that_announces_nothing_is_not_from_a_workspace(answering):
    with pytest.raises(TransferError, match="is no workspace of ours"):
        got(answering(200, {}, b"<html>"))


def test_refusals_carry_the_words_of_the_workspace(answering):
    problem = b'{"title":"Bad Request","detail":"kind must be one of all"}'
    with pytest.raises(ConfigError, match=r"the workspace refused \(400\): kind must be one of all"):
        got(answering(400, {}, problem))
    with pytest.raises(TransferError, match=r"the workspace refused \(429\): 2 exports are under way"):
        got(answering(429, {}, b'{"detail":"2 exports are under way"}'))
    with pytest.raises(TransferError, match=r"the workspace refused \(502\): Bad Gateway"):
        got(answering(502, {}, b"<html>"))


def test_a_redirect_is_not_followed_so_the_token_goes_nowhere_else(answering):
    elsewhere = answering(200, announced(), BODY)
    with pytest.raises(TransferError, match=r"the workspace refused \(302\)"):
        got(answering(302, {"Location": elsewhere}, b""))


def test_the_client_presents_the_token():
    with open_workspace("http://127.0.0.1:1", "token") as client:
        assert isinstance(client, httpx.Client)
        assert client.headers["Authorization"] == "Bearer token"
