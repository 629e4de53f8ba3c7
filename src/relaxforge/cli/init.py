"""``relaxforge init DIR``: a run file, an agent and data that run at once."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import tyro

from relaxforge.cli.flags import parse_flags
from relaxforge.core.errors import ConfigError

FILES = ("run.toml", "agent.py", "tasks.jsonl", "heldout.jsonl")


@dataclass(frozen=True, slots=True)
class InitArguments:
    directory: tyro.conf.Positional[str]
    """Folder to write into; made when it does not exist. Files that are there already are never overwritten."""


def init(argv: Sequence[str]) -> int:
    """Write the starter files. Errors: ``ConfigError`` when one of them exists or the folder cannot be written."""
    folder = Path(parse_flags(InitArguments, argv, prog="relaxforge init").directory)
    if taken := [name for name in FILES if (folder / name).exists()]:
        raise ConfigError(f"{folder / taken[0]} exists already; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            text = resources.files("relaxforge.cli").joinpath("starter", name).read_text(encoding="utf-8")
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error
    run_file = shlex.quote(str(folder / "run.toml"))
    sys.stdout.write(
        f"wrote {', '.join(FILES)} to {folder}\n"
        f"check:  relaxforge doctor {run_file}\n"
        f"try:    relaxforge train {run_file} --engine scripted --model tiny --num-rollout 2\n"
        f"train:  relaxforge train {run_file}\n"
    )
    return 0
