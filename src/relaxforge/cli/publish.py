"""``relaxforge publish FOLDER``: a folder becomes a version of an environment in a workspace."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import tyro

from relaxforge.cli.flags import parse_flags
from relaxforge.cli.private_files import read_private
from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.environments.bundle import pack, read_bundle
from relaxforge.rollout.trial_tasks import tasks_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishArguments:
    folder: tyro.conf.Positional[str]
    """Folder with environment.toml."""

    token_file: str
    """File (mode 0600) with an API token that has the scopes read and publish."""

    workspace_url: str = "http://127.0.0.1:8080"
    """Where the workspace is."""

    environment: str | None = None
    """Name of the environment; it is made when there is none. None: the name in environment.toml."""


def publish(argv: Sequence[str]) -> int:
    """Print the version's number and id. Errors: ``ConfigError``; ``StorageError`` when the workspace is not there."""
    arguments = parse_flags(PublishArguments, argv, prog="relaxforge publish")
    bundle = read_bundle(arguments.folder)
    tasks_of(bundle)
    token = read_private(arguments.token_file, "--token-file")
    name = arguments.environment or bundle.manifest.name
    with httpx.Client(
        base_url=arguments.workspace_url, headers={"Authorization": f"Bearer {token}"}, timeout=120
    ) as client:
        environment_id = _environment(client, name, bundle.manifest.description)
        packed = {"bundle": ("bundle.tar.gz", pack(bundle), "application/gzip")}
        version = _asked(client, "POST", f"/api/v1/environments/{environment_id}/versions", files=packed)
    sys.stdout.write(f"{name} version {version['number']}: {version['id']}\n")
    return 0


def _environment(client: httpx.Client, name: str, description: str) -> str:
    found = _asked(client, "GET", "/api/v1/environments", params={"name": name})["items"]
    if not found:
        body = {"name": name, "description": description}
        found = [_asked(client, "POST", "/api/v1/environments", json=body)]
    return str(found[0]["id"])


def _asked(client: httpx.Client, method: str, path: str, **content: Any) -> Any:
    try:
        answer = client.request(method, path, **content)
    except httpx.HTTPError as error:
        raise StorageError(f"--workspace-url {client.base_url} does not answer: {error}; is it running?") from error
    if answer.is_success:
        return answer.json()
    problem = answer.json() if "json" in answer.headers.get("content-type", "") else {}
    raise ConfigError(f"the workspace refused ({answer.status_code}): {problem.get('detail', answer.text[:200])}")
