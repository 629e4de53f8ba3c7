"""Passwords: argon2, and a price that is the same whether or not the account exists."""

from __future__ import annotations

import asyncio
import secrets
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

LEAST_LENGTH, MOST_LENGTH = 12, 1024

_hasher = PasswordHasher()


def hash_password(password: str) -> str:
    """The string that is kept; it names its own parameters and salt."""
    return _hasher.hash(password)


def one_time_password() -> str:
    """About 99 random bits as four groups that can be read out and typed."""
    letters = "abcdefghjkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(letters) for _ in range(5)) for _ in range(4))


async def matches(password: str, kept: str | None) -> bool:
    """Whether ``password`` is the one behind ``kept``; ``None`` (no such account) takes as long and says no."""
    right = await asyncio.to_thread(_verify, kept or _nobody(), password)
    return right and kept is not None


def _verify(kept: str, password: str) -> bool:
    try:
        return _hasher.verify(kept, password)
    except (VerificationError, InvalidHashError):
        return False


@cache
def _nobody() -> str:
    return hash_password(secrets.token_urlsafe(32))
