"""The workspace as one ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata

from fastapi import APIRouter, Depends, FastAPI

from relaxforge.export.gate import Gate as ExportGate
from relaxforge.store import guard
from relaxforge.store.database import Database
from relaxforge.store.vault import Vault
from relaxforge.web.api import api_router
from relaxforge.web.config import WebConfig
from relaxforge.web.errors import install_handlers
from relaxforge.web.gate import Gate
from relaxforge.web.live import Streams
from relaxforge.web.pages.mount import install as install_pages
from relaxforge.web.parameters import only_known
from relaxforge.web.session import Attempts


def create_app(config: WebConfig, database: Database, vault: Vault) -> FastAPI:
    """The API and the pages on ``database`` (role app), which is opened and checked when the application starts.

    ``app.state`` holds ``config``, ``database``, ``vault``, ``attempts``, ``streams``, ``exports`` and ``closing``
    (an event: the server is ending).
    """
    app = FastAPI(
        title="RelaxForge workspace",
        summary="Private evaluation: repeated trials, kept evidence, exports.",
        version=metadata.version("relaxforge"),
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        dependencies=[Depends(only_known)],
    )
    app.state.config, app.state.database, app.state.vault = config, database, vault
    app.state.attempts, app.state.streams = Attempts(config), Streams(config.event_streams)
    app.state.exports, app.state.closing = ExportGate(config.exports_at_once), asyncio.Event()
    install_handlers(app)
    app.add_middleware(Gate, config=config, database=database)
    app.include_router(_health)
    app.include_router(api_router(), prefix="/api/v1")
    install_pages(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    database: Database = app.state.database
    try:
        await database.open()
        async with database.outside() as tx:
            await guard.check(tx)
    except Exception as error:
        app.state.start_failure = error  # The server only says that the start failed; the program says why.
        await database.close()
        raise
    try:
        yield
    finally:
        await database.close()


_health = APIRouter()


@_health.get("/health", include_in_schema=False)
async def health() -> dict[str, str]:
    """Whether the server answers; says nothing about the database."""
    return {"status": "ok"}
