"""The Export panel of an environment: what each kind holds now, its exact URL, and a line for the shell."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import Request

from relaxforge.core.errors import RelaxForgeError
from relaxforge.export.kinds import DEFAULT_FORMAT, FORMATS, KINDS, choose
from relaxforge.store import rollouts
from relaxforge.store.database import Row, Transaction
from relaxforge.web.pages.html import address

MEANINGS = {
    "all": "every rollout, scored or not",
    "successful": "reward is 1",
    "failed": "every scored miss, partial credit included: reward below 1",
    "recovery": "partial credit only: reward above 0 and below 1",
    "preference": "highest against lowest reward of one environment version; no pair on ties",
}
FORMAT_NAMES = {
    DEFAULT_FORMAT: "ATIF-shaped lines",
    "atif": "ATIF v1.7",
    "trl-sft": "TRL, supervised",
    "trl-kto": "TRL, KTO",
    "trl-preference": "TRL, preference",
    "openai-dpo": "OpenAI, DPO",
}


async def panel(
    request: Request,
    tx: Transaction,
    environment: Row,
    version_id: UUID | None,
    format: str = DEFAULT_FORMAT,  # noqa: A002
) -> dict[str, Any]:
    """What the template shows. The counts come from the function that writes the files, so they agree."""
    format = format if format in FORMATS else DEFAULT_FORMAT  # noqa: A001
    chosen = rollouts.Filter(environment_id=environment["id"], environment_version_id=version_id)
    counts = await rollouts.counts(tx, chosen)
    scope = {"environmentVersionId": version_id} if version_id else {"environmentId": environment["id"]}
    kinds = [_kind(kind, format, getattr(counts, kind), scope) for kind in KINDS]
    usable = sorted((kind for kind in kinds if kind["usable"]), key=lambda kind: kind["name"] != "failed")[0]["url"]
    origin = (request.app.state.config.public_url or str(request.base_url)).rstrip("/")
    return {
        "kinds": kinds,
        "format": format,
        "format_choices": [(name, FORMAT_NAMES.get(name, name)) for name in FORMATS],
        "export_version": str(version_id or ""),
        "out_of_range": counts.out_of_range,
        "curl_line": f"curl -fOJ -H \"Authorization: Bearer $RELAXFORGE_TOKEN\" '{origin}{usable}'",
    }


def _kind(kind: str, format: str, count: int, scope: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    """A row of the panel; ``why`` says why a format does not go with a kind."""
    shown = {"name": kind, "meaning": MEANINGS[kind], "count": count, "usable": True, "why": ""}
    try:
        choose(kind, format)
    except RelaxForgeError as error:
        return {**shown, "usable": False, "why": str(error), "url": ""}
    given = {} if format == DEFAULT_FORMAT else {"format": format}
    return {**shown, "url": address("/api/v1/rollouts", kind=kind, **given, **scope)}
