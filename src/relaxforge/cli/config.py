"""One configuration from a run file and flags: every room brings its own part, here they stand side by side."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import tomli_w
import tyro

from relaxforge.agents.config import AgentConfig
from relaxforge.cli.run_file import read_run_file, unknown
from relaxforge.core.errors import ConfigError
from relaxforge.credit.config import CreditConfig
from relaxforge.engine.config import EngineConfig
from relaxforge.forest.config import HistoryConfig
from relaxforge.gateway.config import GatewayConfig
from relaxforge.observe.config import ObserveConfig
from relaxforge.render.config import RenderConfig
from relaxforge.rollout.config import RolloutConfig
from relaxforge.runs.config import RunConfig
from relaxforge.tasks.config import DataConfig
from relaxforge.train.config import TrainConfig

T = TypeVar("T")

HELP_WIDTH = 100
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration of a run, one part per room."""

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
    use_agentic_rollout: bool = True
    """Accepted so that commands written for the integration guide work; every rollout here is agentic."""
    run_file: tyro.conf.Suppress[str | None] = None


ROOMS: dict[str, type[Any]] = {
    name: kind for name, kind in get_type_hints(Config).items() if dataclasses.is_dataclass(kind)
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
    rest = list(argv)
    run_file = Path(rest.pop(0)) if rest and not rest[0].startswith("-") else None
    values = read_run_file(run_file, settings()) if run_file else {}
    parts = {name: _unchecked(kind, values) for name, kind in ROOMS.items()}
    default = Config(
        **parts,
        use_agentic_rollout=values.get("use_agentic_rollout", True),
        run_file=str(run_file.resolve()) if run_file else None,
    )
    return parse_flags(Config, rest, prog=f"relaxforge {command} [RUN.toml]", default=default)


def parse_flags(kind: type[T], argv: Sequence[str], *, prog: str, default: T | None = None) -> T:
    """A dataclass from flags. Errors: ``ConfigError`` in one line. ``--help`` prints and exits."""
    known = {f"--{name.replace('_', '-')}" for name in _flag_names(kind)}
    for word in argv:
        if word == "--help" or word.split("=")[0].replace("--no-", "--", 1) in known or not word.startswith("--"):
            continue
        raise unknown(word.split("=")[0], known, "command line")
    asks_help = any(word in ("-h", "--help") for word in argv)
    errors = io.StringIO()
    try:
        with _columns(HELP_WIDTH if asks_help else 10_000), contextlib.redirect_stderr(errors):
            return tyro.cli(
                kind, prog=prog, args=list(argv), config=(tyro.conf.OmitArgPrefixes,),
                **({} if default is None else {"default": default}),
            )  # fmt: skip
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ConfigError(_unboxed(errors.getvalue())) from None


def dump_config(config: Config) -> str:
    """The resolved configuration as a run file; values of secret-looking names are redacted."""
    blocks = [f"# {name}\n{_toml_of(getattr(config, name))}" for name in ROOMS]
    return "\n".join(blocks)


def flat(config: Config) -> dict[str, Any]:
    """Every setting that has a value, by key, redacted."""
    return {key: value for name in ROOMS for key, value in _redacted(getattr(config, name)).items()}


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


def _flag_names(kind: type[Any]) -> list[str]:
    hints = get_type_hints(kind)
    parts = [hint for hint in hints.values() if dataclasses.is_dataclass(hint)]
    return [name for part in (kind, *parts) for name in get_type_hints(part)]


@contextlib.contextmanager
def _columns(width: int) -> Iterator[None]:
    """Let tyro lay out its text for ``width`` columns, or for a narrower terminal when it prints help."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width if width > HELP_WIDTH else min(width, shutil.get_terminal_size().columns))
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _unboxed(text: str) -> str:
    """tyro's message without the frame it draws, up to the rule that sets off its hints."""
    lines = [line.strip("│ ") for line in text.splitlines() if line.startswith("│")]
    message = [line for line in lines[: next((i for i, line in enumerate(lines) if set(line) == {"─"}), len(lines))]]
    return " ".join(filter(None, message)) or text.strip()


def _toml_of(part: Any) -> str:
    return tomli_w.dumps(_redacted(part))


def _redacted(part: Any) -> dict[str, Any]:
    values = {spec.name: getattr(part, spec.name) for spec in dataclasses.fields(part)}
    return {key: _without_secrets(key, value) for key, value in values.items() if value is not None}


def _without_secrets(key: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_hide_pair(item) if isinstance(item, str) else item for item in value]
    return value


def _hide_pair(item: str) -> str:
    name, equals, _ = item.partition("=")
    return f"{name}=<redacted>" if equals and _SECRET.search(name) else item
