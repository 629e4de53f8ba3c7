"""The model API: its endpoints, its credentials, and the course of one model request."""

from __future__ import annotations

import time
from functools import partial

import msgspec

from relaxforge.core.errors import RequestError
from relaxforge.core.ports import SessionDoor, TurnHandler
from relaxforge.gateway.chat import Chat
from relaxforge.gateway.dialect import Dialect, Headers
from relaxforge.gateway.exchange import Exchange
from relaxforge.gateway.routing import READING, Route


class ModelApi:
    """The endpoints that agents get. ``models`` are the listed names, the first is the default."""

    def __init__(self, handler: TurnHandler, models: tuple[str, ...], max_body_bytes: int) -> None:
        self._handler = handler
        self._max_body_bytes = max_body_bytes
        self._model_list = _model_list(models)
        self._default_model = models[0]

    def routes(self) -> dict[str, Route]:
        """Paths below the base, without ``/v1``."""
        return {
            "": Route(READING, self._health),
            "/health": Route(READING, self._health),
            "/models": Route(READING, self._models),
            "/chat/completions": self._dialect(Chat(self._default_model)),
        }

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
