"""What every request passes first (who is it, is it small enough, is it ours), and what every answer gets."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from urllib.parse import parse_qs, quote
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relaxforge.core.errors import RelaxForgeError
from relaxforge.observe.log import get_logger
from relaxforge.store.database import Database
from relaxforge.web.caller import Caller
from relaxforge.web.config import MIB, WebConfig
from relaxforge.web.errors import Problem, as_problem, from_http, respond
from relaxforge.web.session import caller_behind

PUBLIC = frozenset({"/health", "/sign-in", "/api/v1/sign-in"})
PUBLIC_FOLDER = "/static/"

BEFORE_PASSWORD = frozenset({"/api/v1/me", "/api/v1/password", "/api/v1/sign-out", "/password", "/sign-out"})
"""All that a person with a one-time password can do."""

READING = frozenset({"GET", "HEAD", "OPTIONS"})

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

log = get_logger()


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, config: WebConfig, database: Database) -> None:
        self._app = app
        self._config = config
        self._database = database

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, scope["path"], encrypted=self._config.encrypted)
        body = _Body(receive, self._limit(scope["path"]))
        request = Request(scope, body.receive)
        request.state.request_id = str(uuid4())
        try:
            refusal = await self._refusal(request, body)
            await (refusal or self._app)(scope, body.receive, answer.send)
        except Exception as error:
            failure = _failure(request, error)
            if answer.started:
                raise  # Half an answer must not look like a whole one: the server breaks the connection.
            await respond(request, failure)(scope, receive, answer.send)

    async def _refusal(self, request: Request, body: _Body) -> Response | None:
        """An answer instead of the one asked for, or ``None``. Errors: ``Problem``."""
        body.check_announced(request)
        path = request.url.path
        if path.startswith(PUBLIC_FOLDER) or path in PUBLIC:
            _check_site(request)
            return None
        caller = await caller_behind(request, self._database, self._config)
        if caller is None:
            return _sign_in_first(request)
        request.state.caller = caller
        if caller.csrf_token is not None and request.method not in READING:
            _check_site(request)
            await _check_token(request, body, caller)
        if caller.must_change_password and path not in BEFORE_PASSWORD:
            return _change_password_first(path)
        return None

    def _limit(self, path: str) -> int:
        if path.endswith("/versions"):
            return self._config.max_upload_mb * MIB
        return self._config.max_ingest_mb * MIB if path.endswith("/sessions") else MIB


class _Answer:
    """Adds the headers that every answer has, unless its route chose them."""

    def __init__(self, send: Send, path: str, *, encrypted: bool) -> None:
        self._send = send
        self._added = dict(HEADERS)
        self._added["cache-control"] = "no-cache" if path.startswith(PUBLIC_FOLDER) else "private, no-store"
        if encrypted:
            self._added["strict-transport-security"] = "max-age=31536000"
        self.started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in self._added.items():
                headers.setdefault(name, value)
        await self._send(message)


class _Body:
    """The request body up to ``limit`` bytes; what has been read ahead is read again by the route."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._seen = 0
        self._ahead: Iterator[Message] = iter(())

    def check_announced(self, request: Request) -> None:
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > self._limit:
            raise self._too_large()

    async def receive(self) -> Message:
        for message in self._ahead:
            return message
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > self._limit:
            raise self._too_large()
        return message

    async def whole(self) -> bytes:
        """All of it, without taking it away from the route."""
        messages: list[Message] = []
        while True:
            messages.append(await self.receive())
            if messages[-1]["type"] == "http.disconnect" or not messages[-1].get("more_body", False):
                break
        self._ahead = iter(messages)
        return b"".join(message.get("body", b"") for message in messages)

    def _too_large(self) -> HTTPException:
        # Of the framework's own kind, which it lets through wherever it reads a body. Nobody reads the rest, so the
        # connection cannot be used again.
        detail = f"the request body is larger than {self._limit // MIB} MiB, the most that is accepted here"
        return HTTPException(413, detail, {"Connection": "close"})


def _check_site(request: Request) -> None:
    # Another port of this machine is the same site to a browser, and another page to us.
    if request.method not in READING and request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise Problem(403, "cross_site", "this request came from a page of another site; open ours and try again")


async def _check_token(request: Request, body: _Body, caller: Caller) -> None:
    given = request.headers.get("x-csrf-token")
    if given is None and request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        fields = parse_qs((await body.whole()).decode("utf-8", "replace"))
        given = fields.get("csrf_token", [""])[0]
    if not hmac.compare_digest((given or "").encode(), (caller.csrf_token or "").encode()):
        raise Problem(
            403,
            "csrf",
            "the token of this page is missing or old (X-CSRF-Token or the form field csrf_token); "
            "reload the page and try again",
        )


def _sign_in_first(request: Request) -> Response:
    path = request.url.path
    if request.method == "GET" and not path.startswith("/api/"):
        here = path + (f"?{request.url.query}" if request.url.query else "")
        target = f"/sign-in?next={quote(here, safe='')}"
        if "hx-request" in request.headers:
            return Response(status_code=401, headers={"HX-Redirect": "/sign-in"})
        return RedirectResponse(target, 303)
    raise Problem(
        401,
        "not_signed_in",
        "sign in, or send a valid API token as 'Authorization: Bearer ...'",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _change_password_first(path: str) -> Response:
    if not path.startswith("/api/"):
        return RedirectResponse("/password", 303)
    raise Problem(403, "password_change_required", "change your one-time password first: POST /api/v1/password")


def _failure(request: Request, error: Exception) -> Problem:
    if isinstance(error, RelaxForgeError):
        return as_problem(request, error)
    if isinstance(error, HTTPException):
        return from_http(error)
    request_id = request.state.request_id
    why = f"{type(error).__name__}: {error}"
    log.error("request_failed", request_id=request_id, path=request.url.path, error=why, exc_info=error)
    return Problem(500, "internal", f"something went wrong on our side; the log has it under {request_id}")
