"""Environments: the list, one environment with all that can be done with it, one version."""

from __future__ import annotations

from secrets import token_urlsafe
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Form, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from relaxforge.core.errors import RelaxForgeError
from relaxforge.export.kinds import DEFAULT_FORMAT
from relaxforge.store import environments, evaluations
from relaxforge.store.database import Row
from relaxforge.web.api import environments as api
from relaxforge.web.api import evaluations as evaluations_api
from relaxforge.web.caller import Caller, Publisher, Reader, Runner, Snapshot, Store, Tx
from relaxforge.web.pages import configuration_form, export_panel
from relaxforge.web.pages.filters import identity
from relaxforge.web.pages.html import address, page
from relaxforge.web.pages.mistakes import sentence
from relaxforge.web.pages.upload import uploaded_bundle
from relaxforge.web.parameters import before, cursor_after

router = APIRouter(include_in_schema=False)

PAGE_ROWS = 50
MOST_LISTED = 20
"""Versions and runs on the page of one environment; both have lists of their own behind them."""

NOTICES = {
    "published": "The version is published.",
    "known": "This content was published before; it is the same version.",
    "configured": "The evaluator configuration is stored.",
    "secret": "The secret is stored.",
    "deleted": "The secret is deleted.",
}


@router.get("/environments")
async def list_environments(request: Request, _: Reader, tx: Snapshot, cursor: str | None = None) -> Response:
    found = await environments.list_environments(tx, before=before(cursor), limit=PAGE_ROWS + 1)
    rows = found[:PAGE_ROWS]
    return page(
        request,
        "environments.html",
        title="Environments",
        here="environments",
        environments=rows,
        environment=None,
        newest="/environments" if cursor else None,
        next=address("/environments", cursor=cursor_after(rows[-1])) if len(found) > PAGE_ROWS else None,
    )


@router.get("/environments/{environment_id}")
async def show_environment(
    request: Request,
    environment_id: UUID,
    caller: Reader,
    tx: Snapshot,
    export_version: str = "",
    format: str = DEFAULT_FORMAT,  # noqa: A002 - the word in the address
    versions: str | None = None,
    done: str = "",
) -> Response:
    environment = await environments.get_environment(tx, environment_id)
    panel = await export_panel.panel(request, tx, environment, identity("export_version", export_version), format)
    return await _environment(request, tx, caller, environment, cursor=versions, notice=NOTICES.get(done), **panel)


@router.post("/environments/versions")
async def publish_environment(request: Request, caller: Publisher, database: Store) -> Response:
    """Publish a bundle into the environment that has the name in its manifest, which is made if it is new."""
    bundle = await uploaded_bundle(request)
    async with database.scope(caller.scope) as tx:
        name = bundle.manifest.name
        environment = await environments.find_environment(tx, name)
        if environment is None:
            asked = api.EnvironmentAsked(name=name, description=bundle.manifest.description)
            target = (await api.create_environment(caller, tx, asked)).id
        else:
            target = environment["id"]
        _, created = await api.publish(tx, caller, target, bundle)
    return _published(target, created=created)


@router.post("/environments/{environment_id}/versions")
async def publish_version(request: Request, environment_id: UUID, caller: Publisher, database: Store) -> Response:
    bundle = await uploaded_bundle(request)
    async with database.scope(caller.scope) as tx:
        _, created = await api.publish(tx, caller, environment_id, bundle)
    return _published(environment_id, created=created)


def _published(environment_id: UUID, *, created: bool) -> Response:
    target = address(f"/environments/{environment_id}", done="published" if created else "known")
    return Response(headers={"HX-Redirect": target})


@router.post("/environments/{environment_id}/runs")
async def start_run(
    environment_id: UUID,
    caller: Runner,
    tx: Tx,
    version: Annotated[UUID, Form()],
    configuration: Annotated[UUID, Form()],
    key: Annotated[str, Form(max_length=200)],
) -> Response:
    await environments.get_environment(tx, environment_id)
    asked = evaluations_api.RunAsked.model_validate(
        {"environmentVersionId": version, "evaluatorConfigurationId": configuration}
    )
    started = await evaluations_api.start_run(Response(), caller, tx, asked, key)
    return RedirectResponse(f"/runs/{started.evaluation_run_id}", 303)


@router.post("/environments/{environment_id}/configurations")
async def create_configuration(
    request: Request, environment_id: UUID, caller: Runner, tx: Tx, given: configuration_form.Given
) -> Response:
    try:
        asked = evaluations_api.ConfigurationAsked.model_validate(given.asked(environment_id))
        await evaluations_api.create_configuration(caller, tx, asked)
    except (RelaxForgeError, ValidationError) as error:
        environment = await environments.get_environment(tx, environment_id)
        panel = await export_panel.panel(request, tx, environment, None)
        return await _environment(
            request, tx, caller, environment, code=422, given=given, configuration_error=sentence(error), **panel
        )
    return RedirectResponse(f"/environments/{environment_id}?done=configured#run", 303)


@router.post("/environments/{environment_id}/secrets")
async def set_secret(
    request: Request,
    environment_id: UUID,
    caller: Publisher,
    tx: Tx,
    name: Annotated[str, Form(max_length=128)],
    value: Annotated[str, Form(max_length=32_768)],
) -> Response:
    await api.set_secret(request, environment_id, name, caller, tx, api.SecretAsked(value=value))
    return RedirectResponse(f"/environments/{environment_id}?done=secret#secrets", 303)


@router.post("/environments/{environment_id}/secrets/{name}/delete")
async def delete_secret(environment_id: UUID, name: str, caller: Publisher, tx: Tx) -> Response:
    await api.delete_secret(environment_id, name, caller, tx)
    return RedirectResponse(f"/environments/{environment_id}?done=deleted#secrets", 303)


@router.get("/environment-versions/{version_id}")
async def show_version(request: Request, version_id: UUID, _: Reader, tx: Snapshot) -> Response:
    version = await environments.get_version(tx, version_id)
    name = version["environment_name"]
    return page(
        request,
        "version.html",
        title=f"{name}, version {version['number']}",
        here="environments",
        crumbs=(
            ("Environments", "/environments"),
            (name, f"/environments/{version['environment_id']}"),
            (f"version {version['number']}", None),
        ),
        version=version,
        files=version["files"],
    )


async def _environment(
    request: Request,
    tx: Snapshot,
    caller: Caller,
    environment: Row,
    *,
    cursor: str | None = None,
    code: int = 200,
    given: configuration_form.Configuration | None = None,
    configuration_error: str | None = None,
    **values: Any,
) -> Response:
    key = environment["id"]
    found = await environments.list_versions(tx, key, before=before(cursor), limit=MOST_LISTED + 1)
    versions = found[:MOST_LISTED]
    newest = versions if cursor is None else await environments.list_versions(tx, key, before=None, limit=MOST_LISTED)
    configurations = await evaluations.list_configurations(tx, before=None, limit=100, environment_id=key)
    return page(
        request,
        "environment.html",
        title=environment["name"],
        here="environments",
        crumbs=(("Environments", "/environments"), (environment["name"], None)),
        code=code,
        environment=environment,
        versions=versions,
        versions_next=address(f"/environments/{key}", versions=cursor_after(versions[-1]))
        if len(found) > MOST_LISTED
        else None,
        version_choices=[(str(row["id"]), f"version {row['number']}") for row in newest],
        configurations=configurations,
        configuration_choices=[(str(row["id"]), row["name"]) for row in configurations],
        runs=await evaluations.list_runs(tx, before=None, limit=MOST_LISTED, environment_id=key),
        secrets=await environments.list_secrets(tx, key) if caller.may("publish") else (),
        required_secrets=_required(newest),
        given=given or configuration_form.first(newest[0]["manifest"] if newest else {}),
        configuration_error=configuration_error,
        once=token_urlsafe(16),
        **values,
    )


def _required(versions: list[Row]) -> list[str]:
    """The secrets that the newest version asks for."""
    return list(versions[0]["manifest"].get("secrets", {}).get("required", ())) if versions else []
