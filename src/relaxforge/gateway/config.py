"""Where the model API listens, and what it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from relaxforge.core.errors import ConfigError
from relaxforge.gateway.noise import ALL_NOISE

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    agentic_bind_host: str = "127.0.0.1"
    """Address on which the model API listens. Agents on other machines need one that they can reach, or 0.0.0.0."""

    agentic_bind_port: int = 0
    """TCP port of the model API, 0 to 65535. 0 takes a free one."""

    agentic_public_url: str | None = None
    """Base URL under which agents reach the model API, without /agentic_api, for example http://10.0.0.5:8000.
    None: http://HOST:PORT of the listener."""

    agentic_max_body_mb: int = 64
    """Largest request body in MiB; a larger one is answered with 413."""

    agentic_admin_port: int | None = 0
    """TCP port of /debug_state, always on loopback and never told to agents. 0 takes a free one. None: no listener."""

    agentic_heartbeat_s: float = 15.0
    """Seconds between the signs of life that a streaming client gets while its answer is being sampled."""

    agentic_stream: Literal["buffered", "tokens"] = "buffered"
    """What a streaming client gets: `buffered` sends all events once the answer is complete; `tokens` also sends text
    as it is sampled, as far as no parser can still make reasoning or a tool call of it. The record is the same."""

    agentic_disconnect_grace_s: float = 2.0
    """Seconds for which a generation goes on after its client hung up: a retry may come and take it over. Then it is
    aborted, and what was sampled is kept as not delivered."""

    agentic_normalise: tuple[str, ...] = ALL_NOISE
    """What known harnesses write anew into every request and is taken out of system text, so that a conversation stays
    one: `billing_header` (a first line x-anthropic-billing-header), `total_tokens` (a count of tokens left). Empty:
    nothing is taken out."""

    def __post_init__(self) -> None:
        _check_port("--agentic-bind-port", self.agentic_bind_port)
        if self.agentic_admin_port is not None:
            _check_port("--agentic-admin-port", self.agentic_admin_port)
        if not self.agentic_bind_host:
            raise ConfigError("--agentic-bind-host must name an address, for example 127.0.0.1 or 0.0.0.0")
        if self.agentic_max_body_mb < 1:
            raise ConfigError(f"--agentic-max-body-mb must be at least 1 MiB, got {self.agentic_max_body_mb}")
        if not self.agentic_heartbeat_s > 0:
            raise ConfigError(f"--agentic-heartbeat-s must be > 0 seconds, got {self.agentic_heartbeat_s}")
        if not self.agentic_disconnect_grace_s >= 0:
            raise ConfigError(
                f"--agentic-disconnect-grace-s must be >= 0 seconds, got {self.agentic_disconnect_grace_s}"
            )
        if self.agentic_stream not in ("buffered", "tokens"):
            raise ConfigError(f"--agentic-stream must be buffered or tokens, got {self.agentic_stream!r}")
        if unknown := set(self.agentic_normalise).difference(ALL_NOISE):
            raise ConfigError(f"--agentic-normalise knows {', '.join(ALL_NOISE)}, got {', '.join(sorted(unknown))}")
        if self.agentic_public_url is not None:
            _check_url(self.agentic_public_url)

    @property
    def max_body_bytes(self) -> int:
        return self.agentic_max_body_mb * MIB


def _check_port(flag: str, port: int) -> None:
    if not 0 <= port <= 65535:
        raise ConfigError(f"{flag} must be between 0 and 65535, got {port}")


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"--agentic-public-url must look like http://host:port, without query or fragment, got {url!r}"
        )
