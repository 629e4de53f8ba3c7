"""The walls around an agent: what it sees of the machine is listed, everything else does not exist.

A sandbox is bubblewrap around ``bash -c``: an empty root with the system's programs and libraries, this Python, and
what the operator adds, all read-only; the Session's own folders, writable; its own home, /tmp, processes, IPC, host
name and network. The network has one way out, ``door.py``, to the model API. When bubblewrap ends, the kernel ends
everything inside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import relaxforge
from relaxforge.agents import door
from relaxforge.agents.config import AgentConfig
from relaxforge.agents.walled import start_of
from relaxforge.core.errors import ConfigError
from relaxforge.core.sessions import AgentLaunch

DOOR_PORT = 4141
HOME = "/home/agent"
TMP = "/tmp"  # noqa: S108  (inside, where it is the agent's own)
_SOCKET = "/run/relaxforge.sock"
_PROXIES = frozenset(("http_proxy", "https_proxy", "all_proxy", "no_proxy"))
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts", "group", "host.conf",
    "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "locale.alias", "mime.types", "nsswitch.conf",
    "passwd", "pki", "protocols", "resolv.conf", "services", "ssl", "terminfo", "timezone",
)  # fmt: skip
_NAMESPACES = ("--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_DEAF = ("bash", "-c", "trap '' TERM; exec \"$@\"", "sandbox")
"""Starts bubblewrap deaf to SIGTERM: if it ended at once, so would the agent, without its grace period."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How every process of a run is confined. ``hidden`` folders stay invisible even below a path that is shown.

    ``socket`` is the model API's unix socket. With ``agent_sandbox`` ``none`` nothing is confined.
    """

    config: AgentConfig
    hidden: tuple[str, ...] = ()
    socket: str | None = None

    @property
    def active(self) -> bool:
        return self.config.agent_sandbox == "bwrap"

    @property
    def origin(self) -> str | None:
        """Where the model API is found inside; ``None``: where it is found outside."""
        return f"http://127.0.0.1:{DOOR_PORT}" if self._closed and self.socket is not None else None

    @property
    def _closed(self) -> bool:
        return self.active and self.config.agent_sandbox_network == "gateway"

    def around(
        self, launch: AgentLaunch, *, read: Iterable[str] = (), write: Iterable[str] = (), models: bool = False
    ) -> AgentLaunch:
        """``launch`` inside the walls, with paths that it may read or also write, and the door to the ``models``."""
        if not self.active:
            return launch
        env = {name: value for name, value in launch.env.items() if not (self._closed and name.lower() in _PROXIES)}
        env |= {"HOME": HOME, "TMPDIR": TMP}
        return replace(launch, env=env, prefix=tuple(self._words(launch.cwd, read, write, models and self._closed)))

    def _words(self, cwd: str, read: Iterable[str], write: Iterable[str], models: bool) -> Iterator[str]:
        door_socket = self.socket if models else None
        yield from _DEAF if door_socket else ()
        yield from (_bubblewrap(), "--die-with-parent", "--new-session", *_NAMESPACES, "--hostname", "agent")
        yield from ("--unshare-net",) if self._closed else ()
        yield from ("--cap-drop", "ALL")
        yield from _system()
        yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", TMP, "--tmpfs", HOME)
        shown = sorted({*_python(), *self.config.agent_sandbox_path, *map(os.path.realpath, read)})
        for path in shown:
            yield from ("--ro-bind", os.path.realpath(path), path)
        for path in self.hidden:
            if any(Path(path).is_relative_to(top) for top in shown):
                yield from ("--tmpfs", path)
        for path in sorted(write):
            yield from ("--bind", path, path)
        yield from ("--ro-bind", door_socket, _SOCKET) if door_socket else ()
        yield from ("--remount-ro", "/", "--chdir", os.path.realpath(cwd), "--")
        if door_socket:
            yield from (sys.executable, "-I", "-S", door.__file__, str(DOOR_PORT), _SOCKET)


def open_sandbox(config: AgentConfig, run_dir: Path, stack: ExitStack | AsyncExitStack) -> Sandbox:
    """The sandbox of a run, with a place for the model API's unix socket that ``stack`` removes.

    Agents see nothing of the run, nor of others beside it, where these lie in the folder that they see anyway.
    """
    if config.agent_sandbox == "none":
        return Sandbox(config)
    # Unix sockets have short names, whatever the name of the run is.
    place = stack.enter_context(tempfile.TemporaryDirectory(prefix="relaxforge-"))
    run, cwd = Path(os.path.realpath(run_dir)), Path(os.path.realpath(config.agent_cwd))
    return Sandbox(config, (str(run.parent if cwd in run.parent.parents else run),), str(Path(place, "models.sock")))


def check_sandbox(config: AgentConfig, env: Mapping[str, str]) -> None:
    """Try an empty sandbox. Errors: ``ConfigError`` saying what is missing and what to install."""
    if config.agent_sandbox == "none":
        return
    for path in config.agent_sandbox_path:
        check_shown("--agent-sandbox-path", path)
    tried = subprocess.run(
        sandboxed(config, ["true"], "/"), env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    if tried.returncode:
        why = tried.stderr.strip() or f"it ended with {tried.returncode}"
        raise ConfigError(
            f"--agent-sandbox bwrap: bubblewrap cannot make a sandbox here: {why}. It needs root or unprivileged user "
            "namespaces (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces and "
            "kernel.apparmor_restrict_unprivileged_userns; in a container: one that may nest)"
        )


def collapsed(launch: AgentLaunch) -> str:
    """Why the sandbox of a launch cannot be made; "" when it can, or there is none. Starts a process."""
    if "--" not in launch.prefix:
        return ""
    with start_of(replace(launch, prefix=launch.prefix[: launch.prefix.index("--") + 1])) as start:
        tried = subprocess.run(
            [*start.words, "true"], env=start.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False, pass_fds=start.descriptors,
        )  # fmt: skip
    return (tried.stderr.strip() or f"it ended with {tried.returncode}") if tried.returncode else ""


def sandboxed(config: AgentConfig, words: list[str], cwd: str) -> list[str]:
    """A command line as it is run for agents, without the door: to look at what they will see."""
    probe = Sandbox(config).around(AgentLaunch("probe", "", cwd, "", {}), read=(cwd,) if cwd != "/" else ())
    return [*probe.prefix, *words]


def check_shown(flag: str, path: str) -> None:
    """Refuse to show a sandboxed agent what holds more than an agent needs. Errors: ``ConfigError``."""
    real = Path(os.path.realpath(path))
    if not real.exists():
        raise ConfigError(f"{flag} {path} does not exist, so a sandbox cannot show it")
    if real in (Path("/"), Path.home()):
        raise ConfigError(
            f"{flag} {path} would show an agent everything below {real}, secrets included; name what it needs"
        )


def _bubblewrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise ConfigError(
            "--agent-sandbox bwrap needs bubblewrap, and there is no bwrap on PATH; install it (apt install "
            "bubblewrap, dnf install bubblewrap, apk add bubblewrap), or choose --agent-sandbox none"
        )
    return found


def _system() -> Iterator[str]:
    """The distribution's programs and libraries; on merged systems /bin and its like are links into /usr."""
    yield from ("--ro-bind", "/usr", "/usr")
    for path in _SYSTEM:
        if os.path.islink(path):  # noqa: PTH114  (the words of a command line)
            yield from ("--symlink", os.readlink(path), path)  # noqa: PTH115
        elif Path(path).is_dir():
            yield from ("--ro-bind", path, path)
    for name in _ETC:
        if Path("/etc", name).exists():
            yield from ("--ro-bind", f"/etc/{name}", f"/etc/{name}")


def _python() -> Iterator[str]:
    """This Python, its environment and this package, where they do not lie in /usr anyway."""
    package = str(Path(relaxforge.__file__).parent)
    for path in (sys.base_prefix, sys.prefix, package):
        if not Path(path).is_relative_to("/usr"):
            yield path
