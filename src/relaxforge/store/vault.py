"""Secrets of environments, encrypted at rest with keys from a file that only its owner reads."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from relaxforge.core.errors import ConfigError, StorageError


class Vault:
    """Encrypts with the first key, decrypts with any. Errors: ``ConfigError`` for keys that are none."""

    def __init__(self, keys: Sequence[str]) -> None:
        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except ValueError as error:
            raise ConfigError(f"the vault has no usable key: {error}; a key is 32 bytes in URL-safe base64") from None

    def seal(self, text: str, place: Sequence[UUID | str]) -> bytes:
        """Ciphertext of ``text`` that opens at ``place`` only (organization, environment, name)."""
        return self._fernet.encrypt(json.dumps([_names(place), text]).encode())

    def open(self, ciphertext: bytes, place: Sequence[UUID | str]) -> str:
        """Errors: ``StorageError`` when no key fits, or the ciphertext was made for another place."""
        try:
            made_for, text = json.loads(self._fernet.decrypt(ciphertext))
        except InvalidToken:
            raise StorageError(
                f"the secret {place[-1]!r} was encrypted with a key that the key file does not hold; put the old key "
                "back below the new one, or set the secret again"
            ) from None
        if made_for != _names(place):
            raise StorageError(f"the secret {place[-1]!r} was encrypted for another environment; set it again")
        return str(text)


def open_vault(path: Path) -> Vault:
    """The vault of a key file: one key a line, the newest first. It is created, with mode 0600, if it is missing.

    Errors: ``ConfigError`` when others may read the file, it is not ours, or its keys are none.
    """
    with suppress(FileExistsError):
        _write_new(path, [Fernet.generate_key().decode()])
    return Vault(_read(path))


def add_key(path: Path) -> None:
    """Put a new key first. Then rotate every organization's secrets, and only then remove the old key by hand."""
    partial = path.with_name(f"{path.name}.new")
    partial.unlink(missing_ok=True)
    _write_new(partial, [Fernet.generate_key().decode(), *_read(path)])
    partial.replace(path)


def _read(path: Path) -> list[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise ConfigError(f"the key file {path} cannot be read: {error.strerror}") from None
    with open(descriptor, encoding="ascii", errors="replace") as file:
        found = os.fstat(descriptor)
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise ConfigError(f"others may read the key file {path}: chmod 600 {path}, and put a new key first")
        if found.st_uid != os.geteuid():
            raise ConfigError(f"the key file {path} belongs to another user (uid {found.st_uid}); it must be ours")
        return file.read().split()


def _write_new(path: Path, keys: Sequence[str]) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write("".join(f"{key}\n" for key in keys))
        file.flush()
        os.fsync(file.fileno())


def _names(place: Sequence[UUID | str]) -> list[str]:
    return [str(part) for part in place]
