"""Files of whole lines that grow: a killed run or a full disk may leave half a line, which must not spoil the next."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

_BLOCK = 65536


class LineFile:
    """Appends whole lines to ``path``, which is opened by the first one. Half a line at its end is cut off then.

    Errors: ``OSError``; the next line, if there is one, opens the file anew and cuts off what the failed one left.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def append(self, line: bytes) -> None:
        """Write ``line`` (without its newline) past any buffer of ours."""
        try:
            if self._file is None:
                self._file = _open_at_line_end(self._path)
            _write_all(self._file, line + b"\n")
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _write_all(file: IO[bytes], data: bytes) -> None:
    """Write until everything is written: a disk that fills up takes a part first and fails at the next attempt."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _open_at_line_end(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab+", buffering=0)
    try:
        size = file.seek(0, os.SEEK_END)
        if (end := _end_of_last_line(file, size)) < size:
            file.truncate(end)
    except OSError:
        file.close()
        raise
    return file


def _end_of_last_line(file: IO[bytes], size: int) -> int:
    while size > 0:
        start = max(0, size - _BLOCK)
        file.seek(start)
        found = file.read(size - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        size = start
    return 0
