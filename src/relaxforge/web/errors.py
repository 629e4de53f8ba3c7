"""Every error answer has one shape: a problem document (RFC 9457), or the page that says the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from relaxforge.core.errors import RelaxForgeError, StorageError
from relaxforge.export.errors import BodyError, BusyError, SelectionError
from relaxforge.observe.log import get_logger
from relaxforge.store.errors import ConflictError, InvalidError, MissingError

MEDIA_TYPE = "application/problem+json"

_TITLES = {
    400: "Bad request", 401: "Not signed in", 403: "Not allowed", 404: "Not found", 405: "Method not allowed",
    409: "Conflict", 413: "Too large", 415: "Unsupported media type", 416: "Range not satisfiable",
    422: "Invalid content", 429: "Too many requests", 500: "Internal error", 503: "Not available now",
}  # fmt: skip

log = get_logger()


class Problem(RelaxForgeError):
    """A request that is answered with an error.

    ``status`` is the HTTP status, ``code`` a stable word, ``errors`` name the offending fields by their path.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.errors = list(errors)

    @property
    def title(self) -> str:
        return _TITLES.get(self.status, "Error")


def not_found(what: str, id: object) -> Problem:  # noqa: A002 - the word of the API
    """The same answer for what never existed and for what belongs to somebody else."""
    return Problem(404, "not_found", f"there is no {what} {id} in this organization")


def respond(request: Request, problem: Problem) -> Response:
    """The problem document; for pages what ``app.state.error_page`` makes of it."""
    page = getattr(request.app.state, "error_page", None)
    if page is not None and not request.url.path.startswith("/api/"):
        response: Response = page(request, problem)
        response.headers.update(problem.headers)
        return response
    body: dict[str, Any] = {
        "type": f"urn:relaxforge:problem:{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": f"urn:uuid:{request.state.request_id}",
    }
    if problem.errors:
        body["errors"] = problem.errors
    return JSONResponse(body, problem.status, problem.headers, MEDIA_TYPE)


def install_handlers(app: FastAPI) -> None:
    """Every error that a route can raise becomes a problem."""

    @app.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        return respond(request, error)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return respond(request, from_http(error))

    @app.exception_handler(RequestValidationError)
    async def validation(request: Request, error: RequestValidationError) -> Response:
        return respond(request, _invalid(error))

    @app.exception_handler(RelaxForgeError)
    async def ours(request: Request, error: RelaxForgeError) -> Response:
        return respond(request, as_problem(request, error))


def from_http(error: HTTPException) -> Problem:
    """What the framework says with an exception of its own."""
    code = _TITLES.get(error.status_code, "error").lower().replace(" ", "_")
    return Problem(error.status_code, code, str(error.detail), headers=error.headers)


def as_problem(request: Request, error: RelaxForgeError) -> Problem:
    """What an error of another room means here; a database that is gone says nothing of its address."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, MissingError):
        return Problem(404, "not_found", str(error))
    if isinstance(error, ConflictError):
        return Problem(409, "conflict", str(error))
    if isinstance(error, InvalidError | BodyError | SelectionError):
        status, place = (400, "query") if request.method == "GET" else (422, "body")
        errors = [{"path": f"{place}.{error.field}", "message": str(error)}]
        return Problem(status, "invalid", str(error), errors=errors)
    if isinstance(error, BusyError):
        return Problem(429, "busy", str(error), headers={"Retry-After": str(error.retry_after_s)})
    if isinstance(error, StorageError):
        log.warning("storage_unavailable", request_id=request.state.request_id, path=request.url.path, error=str(error))
        return Problem(
            503, "storage_unavailable", "the database did not answer; try again", headers={"Retry-After": "5"}
        )
    return Problem(422, "refused", str(error))


def _invalid(error: RequestValidationError) -> Problem:
    found = [
        {"path": ".".join(str(part) for part in item["loc"]), "message": str(item["msg"])} for item in error.errors()
    ]
    places = {str(item["loc"][0]) for item in error.errors()}
    detail = "; ".join(f"{item['path']}: {item['message']}" for item in found[:5])
    if "path" in places:
        return Problem(404, "not_found", "there is nothing at this address", errors=found)
    status = 422 if places == {"body"} else 400
    return Problem(status, "invalid", detail, errors=found)
