"""The web server around the application: one bound socket, an order in which things end."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from relaxforge.core.errors import ConfigError
from relaxforge.web.config import WebConfig

CLOSE_GRACE_S = 5
"""Requests under way get so long to be answered when the server ends."""


class Server(uvicorn.Server):
    """Serves ``app`` on ``bound`` until ``stop``; signals belong to the program around it."""

    def __init__(self, app: FastAPI, config: WebConfig, bound: socket.socket) -> None:
        self.bound = bound
        self.origin = config.public_url or origin(config.host, bound.getsockname()[1])
        self._state = app.state
        self._announce: Callable[[], None] | None = None
        super().__init__(
            uvicorn.Config(
                app, http="httptools", ws="none", lifespan="on", log_config=None, access_log=False, server_header=False,
                log_level="critical", proxy_headers=config.trusted_proxy is not None,
                forwarded_allow_ips=config.trusted_proxy or "", timeout_graceful_shutdown=CLOSE_GRACE_S,
            )
        )  # fmt: skip

    async def run_until_stopped(self, started: Callable[[], None] | None = None) -> None:
        """``started`` is called when requests are answered. Errors: those of the start (``StorageError``, ...)."""
        self._announce = started
        with contextlib.suppress(SystemExit):  # How it tells that the application did not start.
            await self.serve(sockets=[self.bound])
        if (failure := getattr(self._state, "start_failure", None)) is not None:
            raise failure

    def stop(self) -> None:
        """Take no more requests, end the live views, answer what is under way."""
        self._state.closing.set()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._announce is not None:
            self._announce()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(config: WebConfig) -> socket.socket:
    """A listening socket. Errors: ``ConfigError`` naming the flag."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host {config.host!r} cannot be resolved: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(1024)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"--port {config.port} cannot be opened on {config.host}: {error.strerror}; choose another, or 0 for any"
        ) from None
    return bound


def origin(host: str, port: int) -> str:
    """The URL that a browser on this machine uses."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - recognised, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
