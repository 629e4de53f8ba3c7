"""The folder of one Session: its input, its output and its log, readable by nobody else."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from relaxforge.agents.text import mend
from relaxforge.core.errors import AgentError, StorageError
from relaxforge.core.sessions import FailureCategory


def open_folder(sessions_dir: Path, session_id: str, given: dict[str, Any]) -> Path:
    """Create the folder (mode 0700) with ``session_input.json`` and an empty ``run.log``; absolute path.

    Errors: ``StorageError`` when it cannot be written, ``AgentError`` ``env_setup`` when ``given`` is not JSON. Writes
    files: large inputs belong in a thread.
    """
    text = _as_json(session_id, given)
    folder = Path(os.path.realpath(sessions_dir)) / session_id
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        (folder / "run.log").touch(mode=0o600)
        unfinished = folder / ".session_input.json"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(folder / "session_input.json")
    except OSError as error:
        raise StorageError(f"Session {session_id}: cannot prepare {folder}: {error.strerror or error}") from error
    return folder


def _as_json(session_id: str, given: dict[str, Any]) -> str:
    try:
        return mend(json.dumps(given, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise AgentError(
            f"Session {session_id}: the Task cannot be written as JSON: {error}", FailureCategory.ENV_SETUP
        ) from error


def discard_folder(folder: Path) -> bool:
    """Remove a Session's folder and say whether it is gone (an agent may have left files that are not ours)."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
