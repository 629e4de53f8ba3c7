"""The model API on a unix socket, as sandboxed agents reach it, and through the door that stands inside their walls."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import uvloop
from scripted_gateway import PATIENCE_S, ScriptedHandler, say

from relaxforge.agents import door
from relaxforge.core.errors import ConfigError
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.server import Gateway


def serve(path: Path, work) -> None:
    """Run ``work(session)`` in a thread while a gateway listens on ``path``."""

    async def go() -> None:
        handler = ScriptedHandler()
        gateway = Gateway(handler, GatewayConfig(agentic_admin_port=None), ("model",), dict, path)
        await gateway.start()
        try:
            await asyncio.wait_for(asyncio.to_thread(work, handler.new()), PATIENCE_S)
        finally:
            await gateway.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(go())


def ask(client: httpx.Client, session, **more) -> httpx.Response:
    return client.post(
        "/agentic_api/v1/chat/completions",
        json={"messages": [{"role": "user", "content": "hi"}], **more},
        headers={"authorization": f"Bearer {session.credential}"},
    )


def test_the_unix_socket_serves_what_the_port_serves(tmp_path):
    def work(session) -> None:
        session.script = lambda _: say("through the socket")
        transport = httpx.HTTPTransport(uds=str(tmp_path / "api.sock"))
        with httpx.Client(transport=transport, base_url="http://inside") as client:
            assert ask(client, session).json()["choices"][0]["message"]["content"] == "through the socket"
            assert client.get("/agentic_api/health").status_code == 200
            assert client.get("/debug_state").status_code == 404

    serve(tmp_path / "api.sock", work)


def test_the_door_passes_streams_and_large_bodies_and_ends_as_its_command_does(tmp_path):
    port = _free_port()

    def work(session) -> None:
        session.script = lambda _: say("x" * 3_000_000)
        words = [sys.executable, "-I", "-S", door.__file__, str(port), str(tmp_path / "api.sock")]
        with subprocess.Popen([*words, "/bin/bash", "-c", "echo up; read; exit 7"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as running:  # fmt: skip
            assert running.stdout.readline() == b"up\n"
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
                answer = ask(client, session, user="y" * 5_000_000)
                assert len(answer.json()["choices"][0]["message"]["content"]) == 3_000_000
                assert len(session.request.messages) == 1
                assert ask(client, session, stream=True).text.endswith("data: [DONE]\n\n")
            running.stdin.write(b"\n")
            running.stdin.flush()
            assert running.wait(PATIENCE_S) == 7

    serve(tmp_path / "api.sock", work)


def test_a_door_without_a_model_api_closes_the_connection(tmp_path):
    port = _free_port()
    call = f"exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3; echo closed; kill -KILL $$"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", door.__file__, str(port), str(tmp_path / "none"), "/bin/bash", "-c", call],
        capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr, ran.returncode) == (b"closed\n", b"", 128 + 9)


def test_a_socket_that_cannot_be_made_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot listen on the unix socket .*nowhere/api\.sock"):
        serve(tmp_path / "nowhere" / "api.sock", lambda _: None)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]
