"""The listeners: one for agents, and one on loopback that agents are not told about."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from relaxforge.core.errors import ConfigError
from relaxforge.core.ports import TurnHandler
from relaxforge.gateway.app import ModelApi
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.exchange import Exchange
from relaxforge.gateway.routing import READING, Route, Router

BASE = "/agentic_api"

KEEP_ALIVE_S = 3600
"""Idle connections outlive every client's own pool, so that no request meets a connection that we just closed."""

CLOSE_GRACE_S = 5
LOOPBACK = "127.0.0.1"


class Gateway:
    """Serves the model API inside the running event loop, from ``start`` to ``close``.

    ``models`` are the names of ``GET /models``, the first is the default; ``debug_state`` is what the admin listener
    shows. With ``socket_path`` the model API also listens on a unix socket there, which sandboxes can show to an agent
    without showing it a network.
    """

    def __init__(
        self,
        handler: TurnHandler,
        config: GatewayConfig,
        models: tuple[str, ...],
        debug_state: Callable[[], dict[str, Any]],
        socket_path: Path | None = None,
    ) -> None:
        self._config = config
        self._socket_path = socket_path
        self._api = Router(ModelApi(handler, models, config).routes(), BASE)
        self._admin_api = Router({"/debug_state": Route(READING, partial(_show, debug_state))})
        self._listeners: list[Listener] = []
        self._inside: Listener | None = None

    async def start(self) -> None:
        """Errors: ``ConfigError`` naming the flag, as ``check_addresses``."""
        config = self._config
        host, port = config.agentic_bind_host, config.agentic_bind_port
        self._listeners.append(Listener(self._api, _bind(host, port, "--agentic-bind-port")))
        try:
            if config.agentic_admin_port is not None:
                admin = _bind(LOOPBACK, config.agentic_admin_port, "--agentic-admin-port")
                self._listeners.append(Listener(self._admin_api, admin))
            if self._socket_path is not None:
                self._inside = Listener(self._api, _bind_path(self._socket_path))
        except ConfigError:
            await self.close()
            raise

    @property
    def base_url(self) -> str:
        """``RELAX_BASE_URL`` without the part that names a Session: no trailing slash."""
        public = self._config.agentic_public_url
        origin = self._listeners[0].origin if public is None else public.rstrip("/").removesuffix(BASE)
        return self.url_at(origin)

    @staticmethod
    def url_at(origin: str) -> str:
        """``base_url`` where the model API is reached at another origin, as in a sandbox."""
        return origin + BASE

    @property
    def admin_url(self) -> str | None:
        return self._listeners[1].origin if len(self._listeners) > 1 else None

    async def close(self) -> None:
        """Stop listening; requests under way get ``CLOSE_GRACE_S`` seconds to be answered."""
        inside = [self._inside] if self._inside is not None else []
        await asyncio.gather(*(listener.close() for listener in (*self._listeners, *inside)))
        self._listeners.clear()
        self._inside = None


class Listener:
    """One ASGI application on one bound socket."""

    def __init__(self, app: Router, bound: socket.socket) -> None:
        self.origin = _origin(bound)
        self._server = _Server(
            uvicorn.Config(
                app, http="httptools", ws="none", lifespan="off", loop="none", interface="asgi3", log_config=None,
                access_log=False, proxy_headers=False, server_header=False, timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=CLOSE_GRACE_S,
            )
        )  # fmt: skip
        self._serving = asyncio.create_task(self._server.serve(sockets=[bound]), name=f"listen-{self.origin}")

    async def close(self) -> None:
        self._server.should_exit = True
        await self._serving


class _Server(uvicorn.Server):
    """Leaves signals to the program that it is a guest of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _show(debug_state: Callable[[], dict[str, Any]], exchange: Exchange) -> None:
    await exchange.answer(200, msgspec.json.encode(debug_state()))


def check_addresses(config: GatewayConfig) -> None:
    """Take the addresses and let them go again. Errors: ``ConfigError`` naming the flag when one cannot be taken."""
    with contextlib.ExitStack() as taken:
        taken.enter_context(_bind(config.agentic_bind_host, config.agentic_bind_port, "--agentic-bind-port"))
        if config.agentic_admin_port is not None:
            taken.enter_context(_bind(LOOPBACK, config.agentic_admin_port, "--agentic-admin-port"))


def _bind(host: str, port: int, port_flag: str) -> socket.socket:
    """A listening socket. Errors: ``ConfigError`` naming ``--agentic-bind-host`` or ``port_flag``."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--agentic-bind-host {host!r} cannot be resolved: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(4096)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"--agentic-bind-host {host} is not an address of this machine") from None
        raise ConfigError(
            f"{port_flag} {port} cannot be opened on {host}: {error.strerror}; choose another port, or 0 for a free one"
        ) from None
    return bound


def _bind_path(path: Path) -> socket.socket:
    """A listening unix socket. Errors: ``ConfigError``: it needs a folder that we may write to, and a short path."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
        bound.listen(4096)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigError(f"the model API cannot listen on the unix socket {path}: {error.strerror or error}") from None
    return bound


def _origin(bound: socket.socket) -> str:
    if bound.family == socket.AF_UNIX:
        return "http://localhost"
    host, port = bound.getsockname()[:2]
    return f"http://{_reachable(host)}:{port}"


def _reachable(host: str) -> str:
    """The address a client on this machine uses; a wildcard listens on loopback too."""
    host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - recognised, not bound
    return f"[{host}]" if ":" in host else host
