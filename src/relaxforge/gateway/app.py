"""The model API: its endpoints, its credentials, and the course of one model request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import ModelRequest
from relaxforge.core.ports import SessionDoor, TurnHandler
from relaxforge.core.turns import ModelTurn, TextPiece
from relaxforge.gateway.chat import Chat
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.dialect import Dialect, Headers
from relaxforge.gateway.exchange import Exchange
from relaxforge.gateway.listing import model_list
from relaxforge.gateway.messages import Messages
from relaxforge.gateway.responses import Responses
from relaxforge.gateway.routing import READING, Route


class ModelApi:
    """The endpoints that agents get. ``models`` are the listed names, the first is the default."""

    def __init__(self, handler: TurnHandler, models: tuple[str, ...], config: GatewayConfig) -> None:
        self._handler = handler
        self._config = config
        self._model_list = model_list(models)
        self._default_model = models[0]

    def routes(self) -> dict[str, Route]:
        """Paths below the base, without ``/v1``."""
        default, noise = self._default_model, self._config.agentic_normalise
        messages = Messages(default, noise)
        return {
            "": Route(READING, self._health),
            "/health": Route(READING, self._health),
            "/models": Route(READING, self._models),
            "/chat/completions": self._dialect(Chat(default, noise)),
            "/responses": self._dialect(Responses(default, noise)),
            "/messages": self._dialect(messages),
            "/messages/count_tokens": Route(("POST",), partial(self._count, messages), messages.error),
        }

    def _dialect(self, dialect: Dialect) -> Route:
        return Route(("POST",), partial(self._turn, dialect), dialect.error)

    async def _turn(self, dialect: Dialect, exchange: Exchange) -> None:
        door = self._open(exchange)
        try:
            body = await exchange.body(self._config.max_body_bytes)
            request = dialect.read(body, exchange.headers, door)
        except Exception as error:
            door.refused(dialect.api, error)
            raise
        if request.stream:
            await self._stream(dialect, exchange, door, request)
            return
        turn = await self._answered(exchange, door, request)
        complete = False
        try:
            answer = dialect.write(request, turn)
            complete = await exchange.answer(200, answer, (b"x-request-id", turn.request_id.encode()))
        finally:
            door.delivered(turn.request_id, complete)

    async def _stream(self, dialect: Dialect, exchange: Exchange, door: SessionDoor, request: ModelRequest) -> None:
        live, failure = dialect.live(request), partial(dialect.failure, request)
        async with exchange.stream(dialect.heartbeat, self._config.agentic_heartbeat_s, failure):
            if self._config.agentic_stream == "tokens":
                async with exchange.pieces(live.piece) as said:
                    turn = await self._answered(exchange, door, request, said)
            else:
                turn = await self._answered(exchange, door, request)
        complete = False
        try:
            complete = await exchange.finish(live.rest(turn))
        finally:
            door.delivered(turn.request_id, complete)

    async def _answered(
        self,
        exchange: Exchange,
        door: SessionDoor,
        request: ModelRequest,
        said: Callable[[TextPiece], None] | None = None,
    ) -> ModelTurn:
        """The committed Turn; a client that hangs up and stays away for the grace ends its generation."""
        grace_s = self._config.agentic_disconnect_grace_s
        with exchange.departure(grace_s, partial(door.left, request), partial(door.lost, request)):
            return await door.turn(request, said)

    async def _count(self, dialect: Messages, exchange: Exchange) -> None:
        door = self._open(exchange)
        body = await exchange.body(self._config.max_body_bytes)
        tokens = await door.count(dialect.read_to_count(body, exchange.headers, door))
        await exchange.answer(200, msgspec.json.encode({"input_tokens": tokens}))

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
