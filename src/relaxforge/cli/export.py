"""``relaxforge export``: rollouts of a workspace as a file, from the shell."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

import httpx
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from relaxforge.cli.flags import parse_flags
from relaxforge.cli.private_files import read_private
from relaxforge.core.errors import ConfigError
from relaxforge.export.errors import SelectionError
from relaxforge.export.fetch import Arrived, Part, fetch, fetch_features, open_workspace
from relaxforge.export.kinds import choose

TOKEN_VARIABLE = "RELAXFORGE_TOKEN"  # noqa: S105 - the name of a variable, not a secret
SHORT = {"-o": "--output", "--url": "--workspace-url"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportArguments:
    workspace_url: str = "http://127.0.0.1:8080"
    """Where the workspace is. Short: --url."""

    token_file: str | None = None
    """File (mode 0600) with an API token that has the scopes read and export. None: the variable RELAXFORGE_TOKEN."""

    kind: Literal["all", "successful", "failed", "recovery", "preference"] = "all"
    """all; successful: reward 1; failed: reward below 1; recovery: above 0 and below 1; preference: highest against
    lowest reward of one environment version."""

    format: Literal["atif-shaped", "atif", "trl-sft", "trl-kto", "trl-preference", "openai-dpo"] = "atif-shaped"
    """Shape of a line. trl-preference and openai-dpo go with kind preference only."""

    output: str | None = None
    """File to write; one that exists is replaced once the new one is complete. Short: -o. None: the name that the
    workspace gives to this kind, in the current folder."""

    environment: str | None = None
    """Id of an environment. None: all of them."""

    environment_version: str | None = None
    """Id of an environment version. None: all of them."""

    evaluation_run: str | None = None
    """Id of an evaluation run. None: all of them."""

    training_run: str | None = None
    """Id of a training run. None: all of them."""

    since: str | None = None
    """Only rollouts from this time on, as in 2026-01-31T12:00:00Z. None: from the first on."""

    until: str | None = None
    """Only rollouts before this time. None: up to now."""

    all: bool = False
    """Fetch everything, 1000 lines at a time, into the one file. Otherwise the 1000 most recent."""

    tokens: bool = False
    """With format atif: token ids and logprobs of every answer too."""

    features: str | None = None
    """File for the columns of the export, which `datasets.Features.from_dict` takes. None: not written."""


@dataclass(frozen=True, slots=True)
class _Sum:
    rows: int = 0
    left_out: int = 0
    total: int = 0
    size: int = 0
    truncated: bool = False

    def plus(self, part: Part) -> _Sum:
        return _Sum(
            self.rows + part.rows,
            self.left_out + part.left_out,
            max(self.total, part.total),
            self.size + part.size,
            part.next_cursor is not None,
        )


def export(argv: Sequence[str]) -> int:
    """Write the file and say what is in it. Errors: ``ConfigError``, ``TransferError``; then no file is touched."""
    arguments = parse_flags(ExportArguments, [SHORT.get(word, word) for word in argv], prog="relaxforge export")
    try:
        choice = choose(arguments.kind, arguments.format, tokens=arguments.tokens)
    except SelectionError as error:
        raise ConfigError(str(error)) from error
    target = Path(arguments.output or choice.file_name)
    query = _query(arguments)
    with _open(arguments) as client, _replacing(target) as file, _bar(target.name) as arrived:
        done = _fetch_all(client, query, file, arrived, everything=arguments.all)
        if arguments.features:
            shape = {"kind": arguments.kind, "format": arguments.format}
            columns = json.dumps(fetch_features(client, shape), indent=1)
            with _replacing(Path(arguments.features)) as sidecar:
                sidecar.write(columns.encode() + b"\n")
    sys.stdout.write(_summary(target, done))
    return 0


def _open(arguments: ExportArguments) -> httpx.Client:
    if arguments.token_file:
        token = read_private(arguments.token_file, "--token-file")
    elif not (token := os.environ.get(TOKEN_VARIABLE, "").strip()):
        raise ConfigError(f"an API token is needed: --token-file FILE, or the variable {TOKEN_VARIABLE}")
    try:
        return open_workspace(arguments.workspace_url, token)
    except httpx.InvalidURL as error:
        raise ConfigError(f"--workspace-url {arguments.workspace_url}: {error}") from error


def _query(arguments: ExportArguments) -> dict[str, str]:
    given = {
        "kind": arguments.kind,
        "format": arguments.format,
        "environmentId": arguments.environment,
        "environmentVersionId": arguments.environment_version,
        "evaluationRunId": arguments.evaluation_run,
        "trainingRunId": arguments.training_run,
        "since": arguments.since,
        "until": arguments.until,
        "tokens": "true" if arguments.tokens else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _fetch_all(
    client: httpx.Client, query: dict[str, str], file: IO[bytes], arrived: Arrived, *, everything: bool
) -> _Sum:
    done = _Sum()
    cursor: str | None = None
    while True:
        part = fetch(client, {**query, "cursor": cursor} if cursor else query, file, arrived)
        done = done.plus(part)
        cursor = part.next_cursor
        if cursor is None or not everything:
            return done


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A private file beside ``target`` that takes its place at the end, and only if all went well."""
    if target.exists() and not target.is_file():
        raise ConfigError(f"{target} cannot be written: it is no file, and would be replaced by one")
    try:
        file = tempfile.NamedTemporaryFile("wb", dir=target.parent, prefix=f".{target.name}.", delete=False)  # noqa: SIM115
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}") from error
    part = Path(file.name)
    try:
        with file:
            yield cast("IO[bytes]", file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _bar(name: str) -> Iterator[Arrived]:
    """A bar on a terminal, nothing elsewhere; on stderr, so that stdout stays for the result."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=None)
        yield lambda came, size: progress.update(task, completed=came, total=size)


def _summary(target: Path, done: _Sum) -> str:
    lines = [f"{target}: {done.rows} lines, {done.size} bytes, SHA-256 compared; {done.total} rollouts match\n"]
    if done.left_out:
        lines.append(f"{done.left_out} of them cannot be told in this format and are left out\n")
    if done.truncated:
        lines.append("these are the most recent ones; --all fetches the rest\n")
    return "".join(lines)
