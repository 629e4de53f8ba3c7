"""The standard streams as a program may find them: closed, full, gone in the middle, or unable to say every character.

What a Run is worth lies in its folder, so losing the console must not end it.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO


class ConsoleFile(io.FileIO):
    """A standard stream whose writes never fail: from the first error on, what is written goes nowhere.

    ``lost`` is that error, ``None`` while all is well.
    """

    lost: OSError | None = None

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            self.lost = error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes  # type: ignore[arg-type]


def open_console() -> None:
    """Make stdin, stdout and stderr safe for the whole process; called once, by the program itself."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Left free, this number would go to the next file we open, and our lines into that file.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout, sys.stderr = _stream(1, sys.stdout), _stream(2, sys.stderr)


def lost_output() -> OSError | None:
    """Why standard output is incomplete; ``None`` also when whoever read it has simply stopped reading."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    lost = raw.lost if isinstance(raw, ConsoleFile) else None
    return None if isinstance(lost, BrokenPipeError) else lost


def _stream(descriptor: int, given: TextIO | None) -> io.TextIOWrapper:
    raw = ConsoleFile(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(given, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=descriptor == 2 or raw.isatty(),
    )
