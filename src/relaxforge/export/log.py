"""The log of one attempt, of any length, within a budget of bytes."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from relaxforge.core.text import Cleaner, join

LOG_LIMIT_BYTES = 256 * 1024
_SPARE_BYTES = 64 * 1024
_LONGEST_CHARACTER = 4


@dataclass(frozen=True, slots=True)
class Log:
    """What an agent printed: all of it in ``head``, or its start and its end with ``left_out`` bytes between."""

    head: bytes
    tail: bytes = b""
    left_out: int = 0

    @classmethod
    def of(cls, text: str) -> Log:
        return cls(text.encode("utf-8", "surrogatepass"))

    def within(self, limit: int, cleaner: Cleaner) -> tuple[str, bool]:
        """The log as clean text of at most ``limit`` bytes, and whether anything is missing.

        Secrets are masked before anything is cut, so no cut leaves half of one.
        """
        head, tail = cleaner.decode(self.head), cleaner.decode(self.tail)
        if self.left_out:
            # What was read may begin and end inside a secret or a character.
            edge = max(cleaner.longest_secret, _LONGEST_CHARACTER)
            head, tail = head[:-edge], tail[edge:]
        text, missing = join(head, tail, self.left_out, limit)
        return text, missing > 0


def read_log(path: Path, limit: int = LOG_LIMIT_BYTES) -> Log:
    """The start and the end of the log at ``path``, with enough around the cut for ``Log.within(limit)``.

    The agent owns the path: nothing that could block is opened and no link is followed. A log that is not there or
    cannot be read becomes a note saying so.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        return Log.of(f"(no log: {error.strerror})\n")
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Log.of(f"(no log: {path.name} is not a regular file)\n")
        end = limit // 2 + _SPARE_BYTES
        if status.st_size <= 2 * end:
            return Log(file.read(2 * end))
        head = file.read(end)
        file.seek(status.st_size - end)
        return Log(head, file.read(end), status.st_size - 2 * end)
