"""What runs right now, read from /proc. Standard library only: the spawner lives on it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARKER = "RELAX_SESSION_IO_DIR"
"""Variable that every agent gets and its descendants inherit, wherever they move in the process tree."""

_PROC = Path("/proc")
_DEAD = frozenset((b"Z", b"X", b"x"))


@dataclass(frozen=True, slots=True)
class Process:
    """One process that has not ended; ``group`` is its process group."""

    pid: int
    parent: int
    group: int


def read_process(pid: int) -> Process | None:
    """The process, or ``None`` when it has ended (a zombie has)."""
    try:
        # The name in parentheses may itself contain spaces and parentheses.
        state, parent, group = (_PROC / str(pid) / "stat").read_bytes().rpartition(b") ")[2].split(None, 3)[:3]
    except (OSError, ValueError):
        return None
    return None if state in _DEAD else Process(pid, int(parent), int(group))


def all_processes() -> dict[int, Process]:
    """Every process that has not ended, by pid."""
    pids = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())
    return {process.pid: process for pid in pids if (process := read_process(pid))}


def children() -> list[int]:
    """The pids of our own children, zombies included.

    Complete as long as the calling thread is the only one that forks and reaps: then no entry vanishes meanwhile.
    """
    try:
        return [int(pid) for pid in Path("/proc/thread-self/children").read_bytes().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [process.pid for process in all_processes().values() if process.parent == os.getpid()]


def with_descendants(table: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Those of ``roots`` that are in the table, and everything below them."""
    below: dict[int, list[int]] = {}
    for process in table.values():
        below.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    todo = [pid for pid in roots if pid in table]
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo.extend(below.get(pid, ()))
    return found


def marker(pid: int) -> str | None:
    """The Session folder in the environment of ``pid``; ``None`` without one, or when it may not be read."""
    prefix = f"{MARKER}=".encode()
    with suppress(OSError):
        for entry in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            if entry.startswith(prefix):
                return os.fsdecode(entry[len(prefix) :])
    return None
