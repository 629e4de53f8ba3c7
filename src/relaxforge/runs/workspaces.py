"""Where evidence is sent: a workspace over HTTP, or its database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, Protocol, TypeVar
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener
from uuid import UUID

from relaxforge.core.errors import ConfigError, RelaxForgeError, StorageError
from relaxforge.core.evidence import TrainingRunCard, TrainingSession, TrainingStep
from relaxforge.export.training_bodies import run_body, sessions_body, steps_body

T = TypeVar("T")

ANSWER_S = 60.0
"""Seconds that a workspace may take for one answer."""

CONNECT_S = 10.0
"""Seconds for a connection to a database."""

CLOSED = frozenset({401, 403, 404})
AGAIN = frozenset({408, 425, 429})


class WorkspaceAway(RelaxForgeError):
    """Nothing was kept; try again later. ``closed``: only a person can change that."""

    def __init__(self, message: str, *, closed: bool = False) -> None:
        super().__init__(message)
        self.closed = closed


class WorkspaceRefusal(RelaxForgeError):
    """The workspace will never take this; nothing of it was kept."""


class Workspace(Protocol):
    """Takes what a run did. Anything may come twice. Errors: ``WorkspaceAway``, ``WorkspaceRefusal``."""

    @property
    def name(self) -> str:
        """What people call it; holds no credential."""
        ...

    def record(self, card: TrainingRunCard) -> str:
        """Say which run the rest is about; its id there. Comes first, and again after ``WorkspaceAway``."""
        ...

    def add_sessions(self, sessions: Sequence[TrainingSession]) -> None: ...

    def add_steps(self, steps: Sequence[TrainingStep]) -> None: ...

    def close(self) -> None: ...


class HttpWorkspace:
    """The API at ``url``, with an API token that may ``ingest``."""

    def __init__(self, url: str, token: str) -> None:
        self.name = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._opener = build_opener(_NoRedirects)
        self._run = ""

    def record(self, card: TrainingRunCard) -> str:
        told = self._post("", run_body(card))
        if not isinstance(told, dict) or not isinstance(told.get("id"), str):
            raise WorkspaceAway(f"{self.name} is no workspace: its answer has no id", closed=True)
        self._run = told["id"]
        return self._run

    def add_sessions(self, sessions: Sequence[TrainingSession]) -> None:
        self._post(f"/{self._run}/sessions", sessions_body(sessions))

    def add_steps(self, steps: Sequence[TrainingStep]) -> None:
        self._post(f"/{self._run}/steps", steps_body(steps))

    def close(self) -> None:
        self._opener.close()

    def _post(self, path: str, body: bytes) -> Any:
        request = Request(f"{self.name}/api/v1/training-runs{path}", body, self._headers, method="POST")  # noqa: S310 - http or https, see WorkspaceConfig
        try:
            with self._opener.open(request, timeout=ANSWER_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                raise self._judged(error.code, _detail(error)) from None
        except (OSError, HTTPException, ValueError) as error:
            raise WorkspaceAway(f"{self.name} cannot be reached: {getattr(error, 'reason', error)}") from None

    def _judged(self, status: int, detail: str) -> RelaxForgeError:
        said = f"{self.name} answered {status}: {detail}"
        if status in CLOSED or 300 <= status < 400:
            return WorkspaceAway(f"{said}; look at --workspace-url and at the token", closed=True)
        if status in AGAIN or status >= 500:
            return WorkspaceAway(said)
        return WorkspaceRefusal(said)


class _NoRedirects(HTTPRedirectHandler):
    """The token and the evidence go where they were sent, and nowhere else."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Leave it an error."""


def _detail(error: HTTPError) -> str:
    """What a problem document says, or the start of whatever came."""
    try:
        text = error.read(100_000).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return str(error.reason)
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        return text[:200] or str(error.reason)


class DatabaseWorkspace:
    """The rows of one organization, written by the role relaxforge_app. Everything runs on a loop of its own."""

    def __init__(self, url: str, organization_id: UUID) -> None:
        # Imported here: a run that sends nothing, or sends by HTTP, needs no driver.
        from relaxforge.store.database import Scope
        from relaxforge.store.urls import address

        self.name = f"{address(url)} (organization {organization_id})"
        self._url = url
        self._scope = Scope(organization_id)
        self._runner = asyncio.Runner()
        self._run: UUID | None = None

    def record(self, card: TrainingRunCard) -> str:
        from relaxforge.store import training

        self._run = self._within(lambda tx: training.record_run(tx, card), check=True)
        return str(self._run)

    def add_sessions(self, sessions: Sequence[TrainingSession]) -> None:
        from relaxforge.store import training

        run = self._known()
        self._within(lambda tx: training.add_sessions(tx, run, sessions))

    def add_steps(self, steps: Sequence[TrainingStep]) -> None:
        from relaxforge.store import training

        run = self._known()
        self._within(lambda tx: training.add_steps(tx, run, steps))

    def close(self) -> None:
        self._runner.close()

    def _known(self) -> UUID:
        assert self._run is not None  # noqa: S101 - record comes first
        return self._run

    def _within(self, work: Callable[[Any], Coroutine[Any, Any, T]], *, check: bool = False) -> T:
        """``work`` in a transaction of its own. A connection each is cheap against a batch, and never a stale one."""
        from relaxforge.store import guard
        from relaxforge.store.database import Database
        from relaxforge.store.errors import InvalidError, MissingError

        async def go() -> T:
            async with Database(self._url, most=1, timeout_s=CONNECT_S) as database, database.scope(self._scope) as tx:
                if check:
                    await guard.check(tx)
                return await work(tx)

        try:
            return self._runner.run(go())
        except InvalidError as error:
            raise WorkspaceRefusal(str(error)) from error
        except StorageError as error:
            raise WorkspaceAway(str(error)) from error
        except MissingError as error:  # A run that is gone is introduced again; an organization is not.
            raise WorkspaceAway(str(error), closed=check) from error
        except ConfigError as error:
            raise WorkspaceAway(str(error), closed=True) from error
