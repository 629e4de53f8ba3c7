"""Files that hold a secret: one line, for the eyes of one user."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from relaxforge.core.errors import ConfigError


def read_private(path: str | Path, flag: str) -> str:
    """The secret in a file. Errors: ``ConfigError`` naming ``flag``, also when others could read it."""
    if "://" in str(path):
        raise ConfigError(f"{flag} takes the path of a file that holds the URL, and not the URL itself")
    file = Path(path)
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag} {file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISREG(mode) and mode & 0o077:
        raise ConfigError(f"{flag} {file} can be read by other users; run: chmod 600 {file}")
    if not text:
        raise ConfigError(f"{flag} {file} is empty")
    return text


def write_private(path: Path, text: str) -> None:
    """Write a new file that nobody else can read. Errors: ``ConfigError`` when it exists or cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
