"""Build a folder once, whole or not at all, however many runs ask for it at the same time."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from relaxforge.core.errors import ConfigError


def build_once(target: Path, build: Callable[[Path], None]) -> Path:
    """Return ``target``, letting ``build`` fill it first if it does not exist.

    ``build`` writes into a temporary folder beside it, which is renamed when complete; a file lock makes the others
    wait. Errors: ``ConfigError`` when the cache cannot be written, and what ``build`` raises.
    """
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target.parent / f".{target.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_dir():
                _build(target, build)
    except OSError as error:
        raise ConfigError(f"cannot write the model cache {target.parent}: {error}; set XDG_CACHE_HOME") from error
    return target


def _build(target: Path, build: Callable[[Path], None]) -> None:
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        build(work)
        work.chmod(0o755)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
