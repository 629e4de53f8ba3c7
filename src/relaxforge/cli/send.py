"""``relaxforge send RUN_DIR``: evidence that is not in a workspace yet, sent after the run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from relaxforge.cli.evidence import agent_values, order_of, report
from relaxforge.cli.flags import parse_flags
from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.observe.log import configure
from relaxforge.runs.config import WorkspaceConfig
from relaxforge.runs.evidence_feed import EvidenceFeed
from relaxforge.runs.evidence_process import FIRST_WAIT_S, open_workspace
from relaxforge.runs.run_files import RunFiles
from relaxforge.runs.workspaces import WorkspaceAway


@dataclass(frozen=True, slots=True, kw_only=True)
class SendArguments:
    run_dir: tyro.conf.Positional[str]
    """Folder of the run."""

    agent_env: tuple[str, ...] = ()
    """KEY=VALUE that the agents of the run got and that config.toml does not hold, so that it can be hidden; a KEY that
    is set here needs no entry."""

    workspace: WorkspaceConfig = field(default_factory=WorkspaceConfig)


def send(argv: Sequence[str]) -> int:
    """Send what is missing. Errors: ``ConfigError``; ``StorageError`` when the workspace does not come back in time."""
    arguments = parse_flags(SendArguments, argv, prog="relaxforge send RUN_DIR")
    run_dir = Path(arguments.run_dir)
    files = RunFiles(run_dir)
    told = dict(entry.partition("=")[::2] for entry in arguments.agent_env)
    secrets = agent_values(files.settings.get("agent_env", ()), {**os.environ, **told})
    order = order_of(arguments.workspace, run_dir, (*secrets, *told.values()))
    if order is None:
        raise ConfigError("say where to: --workspace-url URL, or --database-url-file FILE --workspace-organization ID")
    configure(None)
    with closing(open_workspace(order)) as workspace:
        feed = EvidenceFeed(run_dir, workspace, order.secrets)
        with feed.sent.alone():
            _send_all(feed, arguments.workspace.workspace_drain_timeout)
    report(order, "", Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print)
    return 0


def _send_all(feed: EvidenceFeed, patience_s: float) -> None:
    """Until nothing is left. ``patience_s`` are seconds without any success."""
    columns = (TextColumn("sending"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    total = feed.unsent
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("sending", total=total)
        since = time.monotonic()
        while True:
            try:
                if not feed.advance():
                    return
                since = time.monotonic()
                progress.update(task, completed=total - feed.unsent)
            except WorkspaceAway as error:
                if error.closed or time.monotonic() - since > patience_s:
                    raise StorageError(f"{error}; {feed.unsent} lines are still to be sent, send again later") from None
                feed.again()
                time.sleep(FIRST_WAIT_S)
