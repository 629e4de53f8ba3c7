"""The model API as an ASGI application: routing, authentication, the course of one model request, errors."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from relaxforge.core.errors import RequestError
from relaxforge.core.ports import SessionDoor, TurnHandler
from relaxforge.gateway.chat import Chat, openai_error
from relaxforge.gateway.dialect import Dialect, Headers
from relaxforge.gateway.exchange import Exchange, Receive, Scope, Send
from relaxforge.observe.log import get_logger

BASE = "/agentic_api"
READING = ("GET", "HEAD")

_TRANSIENT = (429, 503)

_log = get_logger()


@dataclass(frozen=True, slots=True)
class Route:
    """What one path answers to, and the shape of its errors."""

    methods: tuple[str, ...]
    endpoint: Callable[[Exchange], Awaitable[object]]
    error: Callable[[RequestError], bytes] = openai_error

    def check(self, method: str) -> None:
        if self.methods and method not in self.methods:
            raise RequestError(f"this path answers {', '.join(self.methods)} only", status=405, code="wrong_method")


class ModelApi:
    """Every path exists with and without ``/v1``; a trailing slash and the query string do not matter."""

    def __init__(self, handler: TurnHandler, models: tuple[str, ...], max_body_bytes: int) -> None:
        self._handler = handler
        self._max_body_bytes = max_body_bytes
        self._model_list = _model_list(models)
        self._routes: dict[str | None, Route] = {
            "": Route(READING, self._health),
            "/health": Route(READING, self._health),
            "/models": Route(READING, self._models),
            "/chat/completions": self._dialect(Chat(models[0])),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        route = self._routes.get(_resource(scope["path"]), _NOWHERE)
        try:
            route.check(scope["method"])
            await route.endpoint(exchange)
        except RequestError as error:
            await _refuse(exchange, route, error)
        except Exception:  # noqa: BLE001 - the boundary to the agent: a fault of ours becomes a 500 and a log entry
            _log.exception("model_api_failed", session_id=exchange.session_id, path=scope["path"])
            await _refuse(
                exchange, route, RequestError("internal error, see events.log", status=500, code="internal_error")
            )
        finally:
            exchange.close()

    def _dialect(self, dialect: Dialect) -> Route:
        return Route(("POST",), partial(self._turn, dialect), dialect.error)

    async def _turn(self, dialect: Dialect, exchange: Exchange) -> None:
        door = self._open(exchange)
        try:
            body = await exchange.body(self._max_body_bytes)
            request = dialect.read(body, exchange.headers, door)
        except Exception as error:
            door.refused(dialect.api, error)
            raise
        turn = await door.turn(request)
        complete = False
        try:
            answer = dialect.write(request, turn)
            complete = await exchange.answer(200, answer, (b"x-request-id", turn.request_id.encode()))
        finally:
            door.delivered(turn.request_id, complete)

    def _open(self, exchange: Exchange) -> SessionDoor:
        credential = _credential(exchange.headers)
        if credential is None:
            raise RequestError(
                "no credential: send the value of RELAX_SESSION_ID as 'Authorization: Bearer ...'",
                status=401,
                code="missing_credential",
            )
        door = self._handler.open(credential)
        exchange.session_id = door.session_id
        return door

    async def _models(self, exchange: Exchange) -> None:
        self._open(exchange)
        await exchange.answer(200, self._model_list)

    async def _health(self, exchange: Exchange) -> None:
        await exchange.answer(200, b'{"status":"ok"}')


async def _nowhere(_: Exchange) -> None:
    raise RequestError(
        f"no such path; the model API is {BASE}/v1/chat/completions and {BASE}/v1/models",
        status=404,
        code="no_such_path",
    )


_NOWHERE = Route((), _nowhere)


async def _refuse(exchange: Exchange, route: Route, error: RequestError) -> None:
    headers = []
    if error.status not in _TRANSIENT:
        headers.append((b"x-should-retry", b"false"))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status == 405:
        headers.append((b"allow", ", ".join(route.methods).encode()))
    await exchange.answer(error.status, route.error(error), *headers)


def _resource(path: str) -> str | None:
    """The path below the base, without ``/v1`` and trailing slashes; ``None`` when it lies elsewhere."""
    if path != BASE and not path.startswith(BASE + "/"):
        return None
    below = path[len(BASE) :].rstrip("/")
    return below.removeprefix("/v1") if below == "/v1" or below.startswith("/v1/") else below


def _credential(headers: Headers) -> str | None:
    """The bearer token, or the key that Anthropic's clients send."""
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get(b"x-api-key", b"").decode("latin-1") or None


def _model_list(models: tuple[str, ...]) -> bytes:
    created = int(time.time())
    entries = [{"id": name, "object": "model", "created": created, "owned_by": "relaxforge"} for name in models]
    return msgspec.json.encode({"object": "list", "data": entries})
