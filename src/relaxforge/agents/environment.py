"""The environment of an agent: a short list of inherited names, ``--agent-env``, and the seven RELAX_ variables.

Agents do not see the secrets of the trainer. They are other people's programs, and their models write into their
shells, so what they may read is listed here instead of what they may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from relaxforge.agents.config import AgentConfig
from relaxforge.core.errors import ConfigError
from relaxforge.core.ids import Credential
from relaxforge.core.sessions import AgentLaunch, Mode

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_NO_PROXY = ("no_proxy", "NO_PROXY")
_INHERITED = frozenset(
    ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", *_NO_PROXY, *_PROXIES, *(name.upper() for name in _PROXIES))
)


def _inherits(name: str) -> bool:
    return name in _INHERITED or name.startswith("LC_")


def withheld(config: AgentConfig, parent: Mapping[str, str]) -> tuple[str, ...]:
    """Names set in ``parent`` that agents will not see, sorted."""
    given = {entry.partition("=")[0] for entry in config.agent_env}
    return tuple(sorted(name for name in parent if not _inherits(name) and name not in given))


def base_environment(config: AgentConfig, parent: Mapping[str, str]) -> dict[str, str]:
    """What every agent gets before the RELAX_ variables. Errors: ``ConfigError`` for a bare KEY that is not set."""
    env = {name: value for name, value in parent.items() if _inherits(name)}
    for entry in config.agent_env:
        key, equals, value = entry.partition("=")
        if not equals and key not in parent:
            raise ConfigError(f"--agent-env {key} inherits a variable that is not set; export it or write {key}=VALUE")
        env[key] = value if equals else parent[key]
    return env


def agent_launch(
    config: AgentConfig,
    folder: Path,
    credential: Credential,
    *,
    group_id: str,
    mode: Mode,
    base_url: str,
    parent: Mapping[str, str],
) -> AgentLaunch:
    """Everything needed to start the agent of one Session; ``folder`` is what ``open_folder`` made."""
    launch = AgentLaunch(credential.session_id, config.agent_command, config.agent_cwd, str(folder), env={})
    env = _reachable(base_environment(config, parent), base_url)
    env |= {
        "RELAX_INPUT_JSON": str(launch.input_path),
        "RELAX_OUTPUT_JSON": str(launch.output_path),
        "RELAX_SESSION_IO_DIR": launch.io_dir,
        "RELAX_BASE_URL": base_url,
        "RELAX_SESSION_ID": str(credential),
        "RELAX_ROLLOUT_MODE": mode,
        "RELAX_GROUP_ID": group_id,
    }
    launch.env.update(env)
    return launch


def _reachable(env: dict[str, str], base_url: str) -> dict[str, str]:
    """Keep model requests off the proxy: most HTTP clients send even loopback through it unless told otherwise."""
    host = urlsplit(base_url).hostname
    if host and any(env.get(name) or env.get(name.upper()) for name in _PROXIES):
        for name in _NO_PROXY:
            env[name] = ",".join(filter(None, (env.get(name), host)))
    return env
