"""Text that agents leave behind, made safe to store and to show."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MASK = "*"
_CONTROL = {code: "\ufffd" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if chr(code) not in "\n\t"}
_LONGEST_TAIL_OF_A_CHARACTER = 3


def mend(text: str) -> str:
    """``text`` as valid Unicode: surrogate pairs become their character, lone surrogates U+FFFD."""
    if not _LONE_SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def redact(text: str, secret: str) -> str:
    """``text`` with every occurrence of ``secret`` masked by as many asterisks; an empty secret changes nothing."""
    return text.replace(secret, _MASK * len(secret)) if secret else text


def read_regular(path: Path, limit: int, *, end: bool = False) -> bytes | None:
    """At most ``limit`` bytes from the start (or the end) of a regular file; ``None`` when it does not exist.

    The agent owns this path and may have put anything there, so nothing that could block or never end is read, and no
    link is followed: it would lead to a file that we may read and the agent may not. Errors: ``OSError``, also for
    anything that is not a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(f"{path.name} is not a regular file") from None
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is not a regular file")
    with open(descriptor, "rb") as file:
        if end:
            file.seek(max(0, status.st_size - limit))
        return file.read(limit)


def log_tail(path: Path, limit: int, secret: str) -> str:
    """The last ``limit`` bytes of a log as text, cut between characters, without ``secret`` and control characters."""
    hidden = secret.encode()
    try:
        # Further back than needed: a secret through which the cut goes must not escape the mask.
        data = read_regular(path, limit + 1 + len(hidden), end=True) or b""
    except OSError as error:
        return f"(no log: {error})" if limit else ""
    if hidden:
        data = data.replace(hidden, _MASK.encode() * len(hidden))
    if len(data) > limit:
        data = _from_character(data[len(data) - limit :])
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return text.translate(_CONTROL).strip("\n")


def _from_character(data: bytes) -> bytes:
    """Drop the continuation bytes at the start, which belong to a character that was cut."""
    start = 0
    while start < min(_LONGEST_TAIL_OF_A_CHARACTER, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:]
