"""Where the workspace listens, and what it allows."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from relaxforge.core.errors import ConfigError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    host: str = "127.0.0.1"
    """Address on which the pages and the API listen."""

    port: int = 8080
    """TCP port, 0 to 65535. 0 takes a free one."""

    public_url: str | None = None
    """URL under which people reach this server, for example https://workspace.example.org, when a proxy with a
    certificate stands in front. None: http://HOST:PORT."""

    trusted_proxy: str | None = None
    """Address of the proxy whose X-Forwarded-For and X-Forwarded-Proto are believed. None: nobody's."""

    session_idle_s: float = 12 * 3600.0
    """Seconds without a request after which a browser has to sign in again."""

    session_absolute_s: float = 7 * 24 * 3600.0
    """Seconds after a sign-in after which a browser has to sign in again, however busy it was."""

    sign_ins_per_account: int = 10
    """Attempts to sign in per account within 15 minutes; more are refused, right password or not."""

    sign_ins_per_address: int = 60
    """Attempts to sign in per network address within 15 minutes."""

    max_upload_mb: int = 80
    """Largest upload of an environment version in MiB; a larger one is refused before it is read."""

    max_ingest_mb: int = 64
    """Largest upload of training Sessions in MiB."""

    exports_at_once: int = 2
    """Exports that one organization may run at the same time; further ones are told to try again."""

    event_streams: int = 32
    """Live views of evaluation runs that one organization may hold open at the same time."""

    event_poll_s: float = 1.0
    """Seconds between two looks at an evaluation run for its live views."""

    event_stream_s: float = 300.0
    """Seconds after which a live view is closed; the browser opens it again by itself and is checked anew."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port must be between 0 and 65535, got {self.port}")
        if not self.host:
            raise ConfigError("--host must name an address, for example 127.0.0.1 or 0.0.0.0")
        for name in ("session_idle_s", "session_absolute_s", "event_poll_s", "event_stream_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"--{name.replace('_', '-')} must be > 0 seconds, got {getattr(self, name)}")
        for name in ("sign_ins_per_account", "sign_ins_per_address", "max_upload_mb", "max_ingest_mb"):
            _at_least_one(name, getattr(self, name))
        for name in ("exports_at_once", "event_streams"):
            _at_least_one(name, getattr(self, name))
        if self.public_url is not None:
            _check_url(self.public_url)

    @property
    def encrypted(self) -> bool:
        """People reach this server over https, as far as it is told."""
        return self.public_url is not None and self.public_url.startswith("https://")

    @property
    def loopback(self) -> bool:
        """Nobody but programs on this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def secure_cookies(self) -> bool:
        """Cookies travel over https only; plain http is for loopback."""
        return self.encrypted or not self.loopback


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ConfigError(f"--{name.replace('_', '-')} must be at least 1, got {value}")


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/") or parts.query:
        raise ConfigError(f"--public-url must look like https://workspace.example.org, got {url!r}")
