"""Which PostgreSQL servers keep one organization's rows from another."""

from __future__ import annotations

from relaxforge.core.errors import ConfigError

FIRST_SAFE_MINOR = {15: 14, 16: 10, 17: 6}
"""Minor versions before these let statistics leak past row-level security (CVE-2025-8713)."""


def refuse_old_server(server_version: int) -> None:
    """Errors: ``ConfigError`` for a server older than 15.14, 16.10 or 17.6; ``server_version`` is as in ``150014``."""
    major, minor = divmod(server_version, 10_000)
    if major < min(FIRST_SAFE_MINOR) or minor < FIRST_SAFE_MINOR.get(major, 0):
        raise ConfigError(
            f"the server runs PostgreSQL {major}.{minor}, which can leak rows past row-level security; "
            "use 15.14, 16.10, 17.6, 18.0 or newer"
        )
