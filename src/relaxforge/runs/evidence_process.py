"""The process beside a run that sends its evidence: ``python -m relaxforge.runs.evidence_process``.

It reads the run's files and nothing else of the run, at low priority. Killed at any moment, it goes on where it was.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from relaxforge.core.errors import RelaxForgeError
from relaxforge.ipc.child import ChildChannel
from relaxforge.ipc.codec import shape
from relaxforge.ipc.frames import Frame
from relaxforge.observe.log import configure, get_logger
from relaxforge.runs.evidence_feed import EvidenceFeed
from relaxforge.runs.workspaces import DatabaseWorkspace, HttpWorkspace, Workspace, WorkspaceAway

log = get_logger()

LOOK_S = 1.0
"""Seconds between two looks at files that had nothing new."""

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
"""Seconds before another try, doubled each time."""

LOW_PRIORITY = 10


@dataclass(frozen=True, slots=True)
class EvidenceOrder:
    """What to send where. Credentials come through the channel, never in arguments or the environment."""

    run_dir: str
    secrets: tuple[str, ...]
    url: str | None = None
    token: str = ""
    database_url: str = ""
    organization_id: str = ""


def open_workspace(order: EvidenceOrder) -> Workspace:
    """Errors: ``ConfigError`` for a database URL that cannot be read."""
    if order.url is not None:
        return HttpWorkspace(order.url, order.token)
    return DatabaseWorkspace(order.database_url, UUID(order.organization_id))


def main() -> None:
    """Follow the run until ``drain`` is asked for; answer it when all is sent, or with why nothing more can be."""
    os.nice(LOW_PRIORITY)
    configure(None)
    channel = ChildChannel()
    order = shape(next(iter(channel)).body, EvidenceOrder)
    try:
        with closing(open_workspace(order)) as workspace:
            feed = EvidenceFeed(Path(order.run_dir), workspace, order.secrets)
            with feed.sent.alone():
                asked, error = follow(feed, channel)
                channel.reply(asked, error)
    except RelaxForgeError as error:  # The parent starts another one, which may find it mended.
        sys.exit(f"{type(error).__name__}: {error}")
    for _ in channel:
        """The end of the channel is ours."""


def follow(feed: EvidenceFeed, channel: ChildChannel) -> tuple[Frame, str]:
    """Send what comes until it is asked for and all is sent; the frame that asked, and what stood in the way if any.

    Every try that fails meanwhile is told to who asked.
    """
    asked: Frame | None = None
    wait = FIRST_WAIT_S
    while True:
        try:
            while feed.advance():
                wait = FIRST_WAIT_S
            if asked is not None:
                return asked, ""
            pause = LOOK_S
        except WorkspaceAway as error:
            log.warning("workspace_away", error=str(error), again_in_s=wait)
            feed.again()
            if asked is not None:
                channel.event(asked, str(error))
                if error.closed:
                    return asked, str(error)
            pause, wait = wait, min(2 * wait, LONGEST_WAIT_S)
        asked = channel.poll(pause) or asked


if __name__ == "__main__":
    main()
