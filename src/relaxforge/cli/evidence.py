"""Evidence for a workspace: sent beside a run, and what a person reads about it at the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from relaxforge.cli.private_files import read_private
from relaxforge.core.errors import ConfigError
from relaxforge.runs.config import WorkspaceConfig
from relaxforge.runs.evidence_feed import EvidenceFeed
from relaxforge.runs.evidence_process import EvidenceOrder, open_workspace
from relaxforge.runs.evidence_sender import EvidenceSender

TOKEN_VARIABLE = "RELAXFORGE_WORKSPACE_TOKEN"  # noqa: S105 - the name of a variable
PROGRESS_S = 5.0
"""Seconds between two lines that say how far it is."""

SHOWN = 5
"""Names that are listed at most."""


def order_of(config: WorkspaceConfig, run_dir: Path, secrets: Iterable[str]) -> EvidenceOrder | None:
    """What to send where; ``None`` when no workspace is named. Errors: ``ConfigError`` for a missing credential."""
    where, values = str(run_dir), tuple(secrets)
    if config.workspace_url is not None:
        return EvidenceOrder(where, values, url=config.workspace_url, token=_token(config))
    if config.database_url_file is not None:
        url = read_private(config.database_url_file, "--database-url-file")
        order = EvidenceOrder(where, values, database_url=url, organization_id=config.workspace_organization or "")
        _check_driver(order)
        return order
    return None


def agent_values(entries: Iterable[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values that agents got by ``--agent-env``, to be hidden. Errors: ``ConfigError`` for an unknown one."""
    values = []
    for entry in entries:
        name, equals, value = entry.partition("=")
        if (not equals or value == "<redacted>") and name not in environment:
            raise ConfigError(
                f"the agents of this run got {name}, and its value must be known so that it can be hidden; set the "
                f"variable {name}, or say --agent-env {name}=VALUE (--agent-env {name}= hides nothing)"
            )
        values.append(environment[name] if not equals or value == "<redacted>" else value)
    return tuple(values)


@asynccontextmanager
async def sending(
    order: EvidenceOrder | None, log_path: str, drain_s: float, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Send evidence beside what happens inside, and the rest at the end unless the run was stopped at once."""
    if order is None:
        yield
        return
    sender = EvidenceSender(order, log_path)
    await sender.start()
    why = "the run was stopped at once"
    try:
        try:
            yield
        except asyncio.CancelledError:
            raise
        except BaseException:
            why = await _drained(sender, order, drain_s, say)
            raise
        why = await _drained(sender, order, drain_s, say)
    finally:
        await sender.close()
        report(order, why, say)


async def _drained(sender: EvidenceSender, order: EvidenceOrder, limit_s: float, say: Callable[[str], None]) -> str:
    """Why not everything is sent; empty when it is."""
    if unsent := _feed(order).unsent:
        say(f"sending the rest of the evidence: {unsent} lines, {limit_s:g} s at most (Ctrl-C leaves them)")
    draining = asyncio.create_task(sender.drain(limit_s))
    try:
        while not (await asyncio.wait({draining}, timeout=PROGRESS_S))[0]:
            say(f"sending the rest of the evidence: {_feed(order).unsent} lines left")
        return draining.result()
    except asyncio.CancelledError:
        draining.cancel()
        return "you did not wait for it"


def report(order: EvidenceOrder, why: str, say: Callable[[str], None]) -> None:
    """What arrived, what did not and why, and how to send it later."""
    feed = _feed(order)
    if refused := feed.sent.refused:
        shown = ", ".join(refused[:SHOWN]) + (f" and {len(refused) - SHOWN} more" if len(refused) > SHOWN else "")
        say(f"warning: {feed.workspace} takes no evidence of {shown}; why is in {order.run_dir}/logs/evidence.log")
    if unsent := feed.unsent:
        database = f"--database-url-file FILE --workspace-organization {order.organization_id}"
        flags = f"--workspace-url {order.url}" if order.url else database
        say(
            f"warning: {unsent} lines of evidence are not in {feed.workspace} yet: {why}\n"
            f"         send them later with: relaxforge send {order.run_dir} {flags}"
        )
    else:
        say(f"evidence: all of it is in {feed.workspace}")


def _feed(order: EvidenceOrder) -> EvidenceFeed:
    return EvidenceFeed(Path(order.run_dir), open_workspace(order), order.secrets)


def _check_driver(order: EvidenceOrder) -> None:
    try:
        open_workspace(order).close()
    except ModuleNotFoundError as error:
        raise ConfigError(f"--database-url-file needs {error.name}: pip install 'relaxforge[workspace]'") from error


def _token(config: WorkspaceConfig) -> str:
    if config.workspace_token_file is not None:
        return read_private(config.workspace_token_file, "--workspace-token-file")
    if token := os.environ.get(TOKEN_VARIABLE, "").strip():
        return token
    raise ConfigError(f"--workspace-url needs an API token: --workspace-token-file FILE, or set {TOKEN_VARIABLE}")
