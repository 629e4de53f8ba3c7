"""Whether an answer reached its client, and what a client that goes away leaves behind."""

import asyncio
import json
import socket
from urllib.parse import urlsplit

import pytest
from scripted_gateway import PATIENCE_S, RunningGateway, say

from relaxforge.core.errors import RequestError
from relaxforge.gateway.config import GatewayConfig

SMALL = [{"role": "user", "content": "hi"}]
LARGE = [{"role": "user", "content": "x" * 300_000}]
TOO_MUCH_FOR_SOCKET_BUFFERS = "y" * 30_000_000


@pytest.fixture
def connect(running):
    """A raw connection to the gateway."""
    opened = []

    def open_one():
        where = urlsplit(running.url)
        opened.append(socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


async def notice_closed_sockets():
    """The kernel knows of the close already; a few passes of the event loop bring the news to the gateway."""
    for _ in range(10):
        await asyncio.sleep(0)


def head(session, length):
    return (
        f"POST /agentic_api/v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.credential}\r\n"
        f"content-length: {length}\r\n\r\n"
    ).encode()


def ask(connection, session, messages=SMALL):
    body = json.dumps({"messages": messages}).encode()
    connection.sendall(head(session, len(body)) + body)


def read_answer(connection):
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    start, _, body = received.partition(b"\r\n\r\n")
    [length] = [int(line[15:]) for line in start.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < length:
        body += connection.recv(1 << 20)
    return json.loads(body)


def test_an_answer_that_was_read_is_delivered(session, post):
    post()
    assert session.deliveries.get(timeout=PATIENCE_S) == ("r0", True)


def test_a_client_that_reads_its_answer_and_leaves_at_once_was_served(session, connect):
    for _ in range(20):
        connection = connect()
        ask(connection, session)
        read_answer(connection)
        connection.close()
        assert session.deliveries.get(timeout=PATIENCE_S) == ("r0", True)


def test_a_long_answer_is_delivered_whole(session, connect):
    session.script = lambda request: say(TOO_MUCH_FOR_SOCKET_BUFFERS)
    connection = connect()
    ask(connection, session)
    assert read_answer(connection)["choices"][0]["message"]["content"] == TOO_MUCH_FOR_SOCKET_BUFFERS
    assert session.deliveries.get(timeout=PATIENCE_S) == ("r0", True)


def test_a_client_that_leaves_within_a_long_answer_was_not_served(session, connect):
    session.script = lambda request: say(TOO_MUCH_FOR_SOCKET_BUFFERS)
    connection = connect()
    ask(connection, session)
    connection.recv(1000)
    connection.close()
    assert session.deliveries.get(timeout=PATIENCE_S) == ("r0", False)


@pytest.mark.parametrize("messages", [SMALL, LARGE], ids=["small body", "large body"])
def test_a_client_that_leaves_during_generation_was_not_served(running, session, connect, messages):
    session.gate = asyncio.Event()
    connection = connect()
    ask(connection, session, messages)
    assert session.serving.wait(PATIENCE_S)
    connection.close()
    running.run(notice_closed_sockets())
    answered = []
    session.script = lambda request: answered.append(request) or say()
    running.release(session)
    assert session.deliveries.get(timeout=PATIENCE_S) == ("r0", False)
    assert len(answered) == 1


def test_the_other_clients_of_a_session_are_served_when_one_leaves(running, session, connect):
    session.gate = asyncio.Event()
    leaving, staying = connect(), connect()
    for connection in (leaving, staying):
        session.serving.clear()
        ask(connection, session)
        assert session.serving.wait(PATIENCE_S)
    leaving.close()
    running.run(notice_closed_sockets())
    running.release(session)
    assert read_answer(staying)["object"] == "chat.completion"
    assert sorted(session.deliveries.get(timeout=PATIENCE_S)[1] for _ in range(2)) == [False, True]


def test_a_client_that_leaves_before_an_error_disturbs_nobody(running, session, connect, post):
    def script(request):
        raise RequestError("no")

    session.gate, session.script = asyncio.Event(), script
    connection = connect()
    ask(connection, session)
    assert session.serving.wait(PATIENCE_S)
    connection.close()
    running.release(session)
    assert post().status_code == 400
    assert session.deliveries.empty()


def test_a_client_that_leaves_within_its_request_is_a_refusal(running, session, connect):
    refused = asyncio.Event()
    session.refused = lambda api, error: (session.refusals.append(error), refused.set())
    connection = connect()
    connection.sendall(head(session, 1000) + b"{")
    connection.close()
    running.run(asyncio.wait_for(refused.wait(), PATIENCE_S))
    [error] = session.refusals
    assert error.code == "client_closed"
    assert not session.requests


def test_closing_the_gateway_answers_what_is_under_way():
    gateway = RunningGateway(GatewayConfig(agentic_admin_port=None))
    session = gateway.handler.new()
    session.gate = asyncio.Event()
    where = urlsplit(gateway.url)
    with socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S) as connection:
        ask(connection, session)
        assert session.serving.wait(PATIENCE_S)
        gateway.loop.call_soon_threadsafe(gateway.loop.call_later, 0.2, session.gate.set)
        gateway.stop()
        assert read_answer(connection)["object"] == "chat.completion"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S)
