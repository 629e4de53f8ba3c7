"""One gateway for all tests of this room; each test has a Session of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from scripted_gateway import PATIENCE_S, RunningGateway, ScriptedSession

from relaxforge.gateway.config import GatewayConfig


@pytest.fixture(scope="session")
def running() -> Iterator[RunningGateway]:
    gateway = RunningGateway(GatewayConfig())
    yield gateway
    gateway.stop()


@pytest.fixture
def session(running: RunningGateway) -> ScriptedSession:
    return running.handler.new()


@pytest.fixture(scope="session")
def http(running: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
def send(running: RunningGateway, session: ScriptedSession, http: httpx.Client) -> Callable[..., httpx.Response]:
    """POST to any path with the Session's credential: fields, or bytes as they are."""

    def send(path: str, body: bytes | None = None, /, **fields: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {session.credential}"}
        if body is not None:
            return http.post(running.url + path, content=body, headers=headers)
        return http.post(running.url + path, json=fields, headers=headers)

    return send


@pytest.fixture
def post(running: RunningGateway, session: ScriptedSession, http: httpx.Client) -> Callable[..., httpx.Response]:
    """POST one Chat Completions body (fields, or bytes as they are) with the Session's credential."""

    def send(body: bytes | None = None, /, **fields: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {session.credential}"}
        url = f"{running.url}/v1/chat/completions"
        if body is not None:
            return http.post(url, content=body, headers=headers)
        fields.setdefault("messages", [{"role": "user", "content": "hi"}])
        return http.post(url, json=fields, headers=headers)

    return send
