"""The JSON API of an organization."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Security
from fastapi.security import APIKeyCookie, HTTPBearer

from relaxforge.web.api import account, artifacts, environments, evaluations, people, rollouts, training, trials
from relaxforge.web.api.shapes import ProblemDocument
from relaxforge.web.errors import MEDIA_TYPE

# The gate has checked the credentials already; these two say so in the OpenAPI document.
_CREDENTIALS = [
    Security(HTTPBearer(auto_error=False, scheme_name="token", description="An API token of the organization")),
    Security(APIKeyCookie(name="__Host-relaxforge", auto_error=False, scheme_name="browser")),
]

_PROBLEM: dict[str, Any] = {
    "description": "What failed, as a problem document",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ProblemDocument, **_PROBLEM},
    "422": _PROBLEM,
}


def api_router() -> APIRouter:
    """Everything under ``/api/v1``."""
    router = APIRouter(dependencies=_CREDENTIALS, responses=_PROBLEMS)
    for module in (account, people, environments, evaluations, trials, rollouts, artifacts, training):
        router.include_router(module.router)
    return router
