"""Paths to endpoints, and the boundary where every error becomes an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from relaxforge.core.errors import RequestError
from relaxforge.gateway.chat import openai_error
from relaxforge.gateway.exchange import Exchange, Receive, Scope, Send
from relaxforge.observe.log import get_logger

READING = ("GET", "HEAD")

_TRANSIENT = (429, 503)
"""Statuses that a client may try again; every other error carries ``x-should-retry: false``."""

_log = get_logger()


@dataclass(frozen=True, slots=True)
class Route:
    """What one path answers to, and the shape of its errors. Without ``methods``, it answers to all."""

    methods: tuple[str, ...]
    endpoint: Callable[[Exchange], Awaitable[object]]
    error: Callable[[RequestError], bytes] = openai_error

    def check(self, method: str) -> None:
        if self.methods and method not in self.methods:
            raise RequestError(f"this path answers {', '.join(self.methods)} only", status=405, code="wrong_method")


class Router:
    """An ASGI application over ``routes`` below ``base``.

    Every path exists with and without ``/v1``; a trailing slash and the query string do not matter.
    """

    def __init__(self, routes: Mapping[str, Route], base: str = "") -> None:
        self._routes = routes
        self._base = base
        self._elsewhere = Route((), self._nowhere)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        route = self._route(scope["path"])
        try:
            route.check(scope["method"])
            await route.endpoint(exchange)
        except RequestError as error:
            await _refuse(exchange, route, error)
        except Exception:  # noqa: BLE001 - the boundary to the agent: a fault of ours becomes a 500 and a log entry
            _log.exception("gateway_failed", session_id=exchange.session_id, path=scope["path"])
            fault = RequestError("internal error, see events.log", status=500, code="internal_error")
            await _refuse(exchange, route, fault)
        finally:
            exchange.close()

    def _route(self, path: str) -> Route:
        base = self._base
        if path != base and not path.startswith(base + "/"):
            return self._elsewhere
        below = path[len(base) :].rstrip("/")
        if below == "/v1" or below.startswith("/v1/"):
            below = below.removeprefix("/v1")
        return self._routes.get(below, self._elsewhere)

    async def _nowhere(self, _: Exchange) -> None:
        known = ", ".join(self._base + path for path in self._routes if path)
        raise RequestError(f"no such path; there is {known}", status=404, code="no_such_path")


async def _refuse(exchange: Exchange, route: Route, error: RequestError) -> None:
    headers = []
    if error.status not in _TRANSIENT:
        headers.append((b"x-should-retry", b"false"))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status == 405:
        headers.append((b"allow", ", ".join(route.methods).encode()))
    await exchange.refuse(error, route.error(error), *headers)
