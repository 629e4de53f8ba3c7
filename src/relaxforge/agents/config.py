"""How agents are started, how long they may take, and what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from relaxforge.core.errors import ConfigError
from relaxforge.core.sessions import RESERVED_PREFIX

LONGEST_GRACE_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Agent: the program that works on each Task."""

    agent_command: str = ""
    """Command that starts one agent, run by `bash -c` in --agent-cwd."""

    agent_cwd: str = "."
    """Folder in which the command runs."""

    agent_env: tuple[str, ...] = ()
    """Variables for the agent: KEY=VALUE sets one, a bare KEY is taken from our own environment. A later entry for the
    same KEY wins; RELAX_ names are reserved. Nothing else is inherited but PATH, HOME, locale, TMPDIR, VIRTUAL_ENV
    and proxies (`relaxforge doctor` lists what is withheld)."""

    agent_timeout: float = 1800.0
    """Seconds an agent may be active. The clock starts with the Group's lease and stops while requests are held."""

    agent_startup_timeout: float | None = 300.0
    """Seconds from launch to the first model request. None: no limit."""

    agent_kill_grace: float = 5.0
    """Seconds between SIGTERM and SIGKILL when something of a Session has to be ended."""

    agent_log_tail_kb: int = 8
    """KiB from the end of run.log that errors and records show. 0: none."""

    agent_sandbox: Literal["none", "bwrap"] = "none"
    """What is around each agent. `bwrap`: bubblewrap, in which an agent sees the system's programs, this Python, its
    --agent-cwd (read-only) and its own Session folder, and nothing else; home, /tmp, processes and network are its
    own. `none`: agents are ordinary processes of the user who started the run."""

    agent_sandbox_path: tuple[str, ...] = ()
    """More paths that sandboxed agents may read, for example a virtual environment; absolute."""

    agent_sandbox_network: Literal["gateway", "open"] = "gateway"
    """What sandboxed agents reach: the model API and nothing else (`gateway`), or the machine's network (`open`). The
    world and the evaluator of an environment reach nothing, or the network too."""

    agent_log_limit_mb: int = 64
    """MiB of an agent's output that run.log keeps, besides its end; more of it is discarded."""

    keep_session_dirs: Literal["failed", "all", "none"] = "failed"
    """Session folders (input, output, run.log) that stay in the run folder after the Session."""

    def __post_init__(self) -> None:
        if not self.agent_timeout > 0:
            raise ConfigError(f"--agent-timeout must be > 0 seconds, got {self.agent_timeout}")
        if self.agent_startup_timeout is not None and not self.agent_startup_timeout > 0:
            raise ConfigError(f"--agent-startup-timeout must be > 0 seconds, got {self.agent_startup_timeout}")
        if not 0 <= self.agent_kill_grace <= LONGEST_GRACE_S:
            raise ConfigError(
                f"--agent-kill-grace must be between 0 and {LONGEST_GRACE_S:g} seconds, got {self.agent_kill_grace}"
            )
        if self.agent_log_tail_kb < 0:
            raise ConfigError(f"--agent-log-tail-kb must be >= 0 KiB, got {self.agent_log_tail_kb}")
        if self.agent_log_limit_mb < 1:
            raise ConfigError(f"--agent-log-limit-mb must be at least 1 MiB, got {self.agent_log_limit_mb}")
        for entry in self.agent_env:
            _check_entry(entry)
        for path in self.agent_sandbox_path:
            if not path.startswith("/"):
                raise ConfigError(f"--agent-sandbox-path {path} must be absolute: it has the same name inside")

    @property
    def log_tail_bytes(self) -> int:
        return self.agent_log_tail_kb * 1024

    @property
    def log_limit_bytes(self) -> int:
        return self.agent_log_limit_mb * 1024 * 1024

    def keeps_folder(self, *, failed: bool) -> bool:
        """Whether the folder of a Session that ended like this stays."""
        return self.keep_session_dirs == "all" or (failed and self.keep_session_dirs == "failed")


def _check_entry(entry: str) -> None:
    key = entry.partition("=")[0]
    if not key:
        raise ConfigError(f"--agent-env {entry!r} has no name; write KEY=VALUE, or KEY to inherit it")
    if "\0" in entry:
        raise ConfigError(f"--agent-env {key!r} contains a NUL character, which no environment can hold")
    if key.startswith(RESERVED_PREFIX):
        raise ConfigError(
            f"--agent-env {key}: names with {RESERVED_PREFIX} are reserved for what RelaxForge tells the agent; "
            "choose another name"
        )
