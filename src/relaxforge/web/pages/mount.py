"""The pages of the workspace, put into the application."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from relaxforge.web.errors import Problem
from relaxforge.web.pages import comparison, environments, findings, people, runs, sign_in, training, trials
from relaxforge.web.pages.html import page

STATIC = Path(__file__).parents[1] / "static"
HTMX = ("django_htmx", "static/django_htmx")
"""The package that carries htmx, and where in it; pages load nothing from anywhere else."""


def install(app: FastAPI) -> None:
    """Add the routes of the pages, their static files, and the page that says what an error says."""
    app.mount("/static", StaticFiles(directory=STATIC, packages=[HTMX]), name="static")
    for module in (sign_in, environments, runs, trials, comparison, findings, training, people):
        app.include_router(module.router)
    app.state.error_page = error_page


def error_page(request: Request, problem: Problem) -> Response:
    """What a person sees instead of a problem document; htmx gets the sentence alone."""
    template = "error_part.html" if "hx-request" in request.headers else "error.html"
    return page(
        request,
        template,
        title=problem.title,
        code=problem.status,
        problem=problem,
        request_id=request.state.request_id,
    )
