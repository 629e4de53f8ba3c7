"""run.log: what agents print comes through pipes of ours, so that one that prints for ever fills no disk."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from pathlib import Path

CHUNK = 64 * 1024
"""Bytes that a pipe holds, that are read at once, and that are kept from the end of a log that is too long."""

LAST_READS = 64
"""Reads after the end of a Session: a process that could not be ended may print for ever."""


class RunLog:
    """The first ``limit`` bytes of an output and, behind a line that says so, the end of one that is longer."""

    def __init__(self, path: Path, limit: int) -> None:
        # Whoever ran in this folder before may have left a link in its place.
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._limit = limit
        self._room = limit
        self._left_out = 0
        self._end = b""

    def write(self, data: bytes) -> None:
        kept, rest = data[: self._room], data[self._room :]
        self._room -= len(kept)
        self._store(kept)
        if rest:
            self._left_out += len(rest)
            self._end = rest if len(rest) == CHUNK else (self._end + rest)[-CHUNK:]

    def close(self) -> None:
        if missing := self._left_out - len(self._end):
            self._store(b"\n[%d bytes are missing here: only %d and the end are kept]\n" % (missing, self._limit))
        self._store(self._end)
        os.close(self._file)

    def _store(self, data: bytes) -> None:
        rest = memoryview(data)
        with suppress(OSError):  # A full disk costs the log; whoever writes results says that it is full.
            while rest:
                rest = rest[os.write(self._file, rest) :]


class LogPump:
    """Carries what agents print into their logs, in a thread of its own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._news = select.epoll()
        self._logs: dict[int, RunLog] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._pump, name="log-pump", daemon=True).start()

    def open(self, path: Path) -> tuple[int, int]:
        """Begin a log. Returns its name for ``close``, and the descriptor to print to, which the caller closes."""
        log = RunLog(path, self._limit)
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self._logs[ours] = log
        self._news.register(ours, select.EPOLLIN)
        return ours, theirs

    def close(self, name: int) -> None:
        """Take what was printed before this call, and end the log."""
        with self._lock:
            for _ in range(LAST_READS):
                if not self._take(name):
                    break
            with suppress(OSError):
                self._news.unregister(name)
            os.close(name)
            self._logs.pop(name).close()

    def _pump(self) -> None:
        while True:
            for name, _ in self._news.poll():
                with self._lock:
                    if name in self._logs and self._take(name) == b"":
                        self._news.unregister(name)  # Nobody can print to it any more.

    def _take(self, name: int) -> bytes | None:
        """Carry one piece over. Empty at the end of the output, ``None`` when there is nothing at the moment."""
        try:
            data = os.read(name, CHUNK)
        except BlockingIOError:
            return None
        self._logs[name].write(data)
        return data
