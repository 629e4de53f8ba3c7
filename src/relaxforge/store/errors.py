"""What the store says no to. Everything that another organization owns is missing, never forbidden."""

from __future__ import annotations

from relaxforge.core.errors import RelaxForgeError


class MissingError(RelaxForgeError):
    """There is no such row in this organization."""

    def __init__(self, what: str, identity: object) -> None:
        super().__init__(f"there is no {what} {identity} in this organization")


class ConflictError(RelaxForgeError):
    """The request contradicts what is stored: a name that is taken, a key that was used for something else."""


class InvalidError(RelaxForgeError):
    """A value outside what is allowed; ``field`` names it as the API does (``attemptCount``)."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


class LeaseLostError(RelaxForgeError):
    """The job belongs to another worker by now; nothing of this step was written."""
