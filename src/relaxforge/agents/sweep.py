"""Ending agents that nobody supervises any more: the spawner was killed, or an earlier run was.

Inside a run the spawner ends every Session completely; this is the net below it, and it knows Sessions only by the
marker in their environment.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from relaxforge.agents.ending import Ending, send
from relaxforge.agents.processes import Process, all_processes, marker, with_descendants

CLEAN_LOOKS = 2
"""A process in the middle of an exec shows no environment for a moment, so one look that finds nothing may be wrong."""


def end_leftovers(sessions_dir: Path, grace_s: float) -> int:
    """End every process that belongs to a Session folder in ``sessions_dir``; the number of processes found.

    Blocks until they are gone. Only one run may use ``sessions_dir``: agents of another would be ended too.
    """
    prefix = os.path.realpath(sessions_dir) + os.sep
    ending = Ending(grace_s, time.monotonic())
    found: set[int] = set()
    clean_looks = 0
    while clean_looks < CLEAN_LOOKS and not ending.gave_up(time.monotonic()):
        table = all_processes()
        members = _marked(table, prefix)
        found |= members
        clean_looks = 0 if members else clean_looks + 1
        now = time.monotonic()
        if members and (number := ending.due(now)):
            send(number, {table[pid].group for pid in members})
        _wait_gone(members, ending.pause_s(now))
    return len(found)


def _marked(table: dict[int, Process], prefix: str) -> set[int]:
    """Marked processes, their whole process groups, and everything below; never we ourselves and who started us."""
    marked = [pid for pid in table if (marker(pid) or "").startswith(prefix)]
    groups = {table[pid].group for pid in marked}
    roots = [process.pid for process in table.values() if process.group in groups]
    spared = _own_groups(table)
    return {pid for pid in with_descendants(table, roots) if table[pid].group not in spared}


def _own_groups(table: dict[int, Process]) -> set[int]:
    """The process groups of ourselves and our ancestors: somebody may try an agent by hand in the shell above us."""
    groups: set[int] = set()
    pid = os.getpid()
    while process := table.get(pid):
        groups.add(process.group)
        pid = process.parent
    return groups


def _wait_gone(pids: Iterable[int], timeout_s: float) -> None:
    """Return when all have ended, or after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    poll = select.poll()
    waiting: set[int] = set()
    try:
        for pid in pids:
            with suppress(ProcessLookupError):
                waiting.add(descriptor := os.pidfd_open(pid))
                poll.register(descriptor, select.POLLIN)
        while waiting and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(left * 1000):
                poll.unregister(descriptor)
                waiting.discard(descriptor)
                os.close(descriptor)
    finally:
        for descriptor in waiting:
            os.close(descriptor)
