"""Names of things: Sessions, Groups, requests, and the secret that opens a Session's model API."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Credential:
    """What an agent presents as its API key: ``<session_id>.<secret>``.

    Only ``session_id`` may ever be written anywhere; the secret (128 bits, hex) stays in memory and in the
    agent's environment.
    """

    session_id: str
    secret: str

    @classmethod
    def issue(cls, session_id: str) -> Credential:
        return cls(session_id, secrets.token_hex(16))

    @classmethod
    def parse(cls, text: str) -> Credential | None:
        """Split a presented key; ``None`` when it does not have the two parts."""
        session_id, dot, secret = text.partition(".")
        return cls(session_id, secret) if dot and session_id and secret else None

    def __str__(self) -> str:
        return f"{self.session_id}.{self.secret}"

    def __repr__(self) -> str:
        return f"Credential({self.session_id!r}, secret withheld)"

    def opens(self, other: Credential) -> bool:
        """Whether both name the same Session with the same secret, in constant time."""
        return self.session_id == other.session_id and hmac.compare_digest(
            self.secret.encode("utf-8", "replace"), other.secret.encode("utf-8", "replace")
        )


def group_id(mode: str, number: int) -> str:
    """The runtime id of a Group, for example ``train-g000012``."""
    return f"{mode}-g{number:06d}"


def session_id(group: str, index: int, incarnation: int) -> str:
    """The id of the ``index``-th Session of a Group, for example ``train-g000012-03``.

    ``incarnation`` counts restarts of one run; from the second on it is part of the id, so that a repeated step
    after ``--resume`` never reuses the name of an attempt that is already on disk.
    """
    suffix = f"-i{incarnation}" if incarnation else ""
    return f"{group}-{index:02d}{suffix}"
