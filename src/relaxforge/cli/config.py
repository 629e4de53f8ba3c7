"""One configuration from a run file and flags: every room brings its own part, here they stand side by side."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import tomli_w
import tyro

from relaxforge.agents.config import AgentConfig
from relaxforge.cli.flags import parse_flags
from relaxforge.cli.run_file import read_run_file
from relaxforge.credit.config import CreditConfig
from relaxforge.engine.config import EngineConfig
from relaxforge.forest.config import HistoryConfig
from relaxforge.gateway.config import GatewayConfig
from relaxforge.observe.config import ObserveConfig
from relaxforge.render.config import RenderConfig
from relaxforge.rollout.config import RolloutConfig
from relaxforge.runs.config import RunConfig, WorkspaceConfig
from relaxforge.tasks.config import DataConfig
from relaxforge.train.config import TrainConfig

T = TypeVar("T")

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a run, by room. A run file has the same names in snake_case; a flag wins over it."""

    run: RunConfig
    data: DataConfig
    agents: AgentConfig
    rollout: RolloutConfig
    credit: CreditConfig
    train: TrainConfig
    engine: EngineConfig
    render: RenderConfig
    history: HistoryConfig
    gateway: GatewayConfig
    observe: ObserveConfig
    workspace: WorkspaceConfig
    use_agentic_rollout: bool = True
    """Accepted so that commands written for the integration guide work; every rollout here is agentic."""
    run_file: tyro.conf.Suppress[str | None] = None


ROOMS: dict[str, type[Any]] = {
    k: v for k, v in get_type_hints(Config).items() if k not in ("use_agentic_rollout", "run_file")
}
"""The configuration class of each part, in the order of the help."""


def settings() -> dict[str, Any]:
    """Every setting by its key in a run file (``agent_timeout``; the flag is ``--agent-timeout``), with its type."""
    types = {key: hint for kind in ROOMS.values() for key, hint in get_type_hints(kind).items()}
    return {**types, "use_agentic_rollout": bool}


def load_config(command: str, argv: Sequence[str]) -> Config:
    """The configuration that ``relaxforge COMMAND [RUN.toml] [--flag value ...]`` asks for; a flag wins over the file.

    The run file is the first argument, unless that is a flag. Errors: ``ConfigError``. ``--help`` prints and exits.
    """
    words = list(argv)
    run_file = Path(words.pop(0)) if words and not words[0].startswith("-") else None
    values = read_run_file(run_file, settings()) if run_file else {}
    parts = {name: _unchecked(kind, values) for name, kind in ROOMS.items()}
    default = Config(
        **parts,
        use_agentic_rollout=values.get("use_agentic_rollout", True),
        run_file=str(run_file.resolve()) if run_file else None,
    )
    return parse_flags(Config, words, prog=f"relaxforge {command} [RUN.toml]", default=default)


def dump_config(config: Config) -> str:
    """The resolved configuration as a run file that gives it again, but for redacted values."""
    return "\n".join(f"# {name}\n{tomli_w.dumps(_written(getattr(config, name)))}" for name in ROOMS)


def flat(config: Config) -> dict[str, Any]:
    """The resolved configuration by key, redacted, for trackers of metrics."""
    return {key: value for name in ROOMS for key, value in _written(getattr(config, name)).items()}


def _unchecked(kind: type[T], values: Mapping[str, Any]) -> T:
    """An instance whose own checks have not run: the flags that complete it are still to come."""
    part = object.__new__(kind)
    for spec in dataclasses.fields(kind):  # type: ignore[arg-type]
        object.__setattr__(part, spec.name, values.get(spec.name, _default(spec)))
    return part


def _default(spec: dataclasses.Field[Any]) -> Any:
    if spec.default is not dataclasses.MISSING:
        return spec.default
    return tyro.MISSING if spec.default_factory is dataclasses.MISSING else spec.default_factory()


def _written(part: Any) -> dict[str, Any]:
    """The values of one part as TOML can say them: None as a word where it is not the default anyway."""
    values = {spec.name: getattr(part, spec.name) for spec in dataclasses.fields(part)}
    unset = {spec.name for spec in dataclasses.fields(part) if values[spec.name] is None and _default(spec) is None}
    return {key: "None" if value is None else _redacted(value) for key, value in values.items() if key not in unset}


def _redacted(value: Any) -> Any:
    return [_without_secret(item) for item in value] if isinstance(value, tuple) else value


def _without_secret(item: Any) -> Any:
    name, equals, _ = item.partition("=") if isinstance(item, str) else ("", "", "")
    return f"{name}=<redacted>" if equals and _SECRET.search(name) else item
