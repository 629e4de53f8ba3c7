"""What cannot be exported."""

from __future__ import annotations

from relaxforge.core.errors import RelaxForgeError


class SelectionError(RelaxForgeError):
    """There is no such kind or format, or the two do not go together; ``field`` names the parameter."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


class BusyError(RelaxForgeError):
    """The organization has as many exports under way as it may; ``retry_after_s`` says when to try again."""

    def __init__(self, most: int, retry_after_s: int = 2) -> None:
        super().__init__(f"{most} exports are under way already; try again in {retry_after_s} seconds")
        self.retry_after_s = retry_after_s


class TransferError(RelaxForgeError):
    """A workspace refused an export, or what arrived is not what it sent."""


class BodyError(RelaxForgeError):
    """What was sent cannot be read; ``field`` is its path."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
