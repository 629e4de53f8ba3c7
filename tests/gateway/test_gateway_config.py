"""Where the gateway listens, and what it says when it cannot."""

import asyncio
import signal
import socket
from pathlib import Path

import httpx
import pytest
from scripted_gateway import RunningGateway, ScriptedHandler

from relaxforge.core.errors import ConfigError
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.server import Gateway


def start_and_close(config):
    async def both():
        gateway = Gateway(ScriptedHandler(), config, ("tiny",), dict)
        await gateway.start()
        try:
            return gateway.base_url, gateway.admin_url
        finally:
            await gateway.close()

    return asyncio.run(both())


@pytest.mark.parametrize(
    ("fields", "flag"),
    [
        ({"agentic_bind_port": -1}, "--agentic-bind-port"),
        ({"agentic_bind_port": 65536}, "--agentic-bind-port"),
        ({"agentic_admin_port": 70000}, "--agentic-admin-port"),
        ({"agentic_max_body_mb": 0}, "--agentic-max-body-mb"),
        ({"agentic_bind_host": ""}, "--agentic-bind-host"),
        ({"agentic_public_url": "10.0.0.5:8000"}, "--agentic-public-url"),
        ({"agentic_public_url": "http://x/?a=1"}, "--agentic-public-url"),
        ({"agentic_public_url": "ftp://x"}, "--agentic-public-url"),
    ],
)
def test_bad_values_name_their_flag(fields, flag):
    with pytest.raises(ConfigError, match=flag):
        GatewayConfig(**fields)


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        yield occupied.getsockname()[1]


@pytest.mark.parametrize(
    ("field", "flag"), [("agentic_bind_port", "--agentic-bind-port"), ("agentic_admin_port", "--agentic-admin-port")]
)
def test_a_port_in_use_names_its_flag(taken, field, flag):
    with pytest.raises(ConfigError, match=rf"{flag} {taken} cannot be opened on 127\.0\.0\.1: .*in use"):
        start_and_close(GatewayConfig(**{field: taken}))


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_a_bad_host_names_its_flag(host):
    with pytest.raises(ConfigError, match="--agentic-bind-host"):
        start_and_close(GatewayConfig(agentic_bind_host=host))


def test_free_ports_are_taken_by_default():
    base, admin = start_and_close(GatewayConfig())
    assert base.startswith("http://127.0.0.1:")
    assert base.endswith("/agentic_api")
    assert admin.startswith("http://127.0.0.1:")
    assert base.removesuffix("/agentic_api") != admin


def test_the_admin_listener_can_be_left_out():
    assert start_and_close(GatewayConfig(agentic_admin_port=None))[1] is None


def test_a_wildcard_address_is_told_as_one_that_can_be_reached():
    base, _ = start_and_close(GatewayConfig(agentic_bind_host="0.0.0.0", agentic_admin_port=None))
    assert base.startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    "url", ["https://gate.example/one", "https://gate.example/one/", "https://gate.example/one/agentic_api/"]
)
def test_the_public_url_is_what_agents_are_told(url):
    base, _ = start_and_close(GatewayConfig(agentic_public_url=url, agentic_admin_port=None))
    assert base == "https://gate.example/one/agentic_api"


def test_signals_stay_with_the_program():
    numbers = (signal.SIGINT, signal.SIGTERM)

    async def handlers_before_and_while_serving():
        before = [signal.getsignal(number) for number in numbers]
        gateway = Gateway(ScriptedHandler(), GatewayConfig(), ("tiny",), dict)
        await gateway.start()
        async with httpx.AsyncClient() as client:
            await client.get(f"{gateway.base_url}/health")
        serving = [signal.getsignal(number) for number in numbers]
        await gateway.close()
        return before, serving

    before, serving = asyncio.run(handlers_before_and_while_serving())
    assert before == serving


def test_a_closed_gateway_leaves_no_descriptor_open():
    RunningGateway(GatewayConfig()).stop()
    before = len(list(Path("/proc/self/fd").iterdir()))
    RunningGateway(GatewayConfig()).stop()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
