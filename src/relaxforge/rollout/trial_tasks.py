"""The Tasks of an environment version. Light: whoever publishes one looks at them, too."""

from __future__ import annotations

from typing import Any

from relaxforge.core.errors import BundleError, TaskError
from relaxforge.core.sessions import Task
from relaxforge.core.strict_json import loads
from relaxforge.environments.bundle import Bundle
from relaxforge.tasks.rows import RowShape, task


def tasks_of(bundle: Bundle) -> tuple[Task, ...]:
    """The Tasks of an environment version, every row checked. Errors: ``BundleError`` with the line."""
    part, rows = bundle.manifest.tasks, list[tuple[str, Any]]()
    for number, row in enumerate(bundle.manifest.inline_tasks, start=1):
        rows.append((f"[[task]] {number}", row))
    for number, line in enumerate((bundle.content(part.path) or b"").split(b"\n") if part.path else (), start=1):
        if line.strip():
            rows.append((f"{part.path}:{number}", _row(line, f"{part.path}:{number}")))
    if not rows:
        raise BundleError(f"{part.path} has no rows; each line is one task, an object")
    shape = RowShape(part.input_key, part.metadata_key, part.label_key or None)
    try:
        return tuple(task(row, index, where, shape) for index, (where, row) in enumerate(rows))
    except TaskError as error:
        raise BundleError(str(error)) from error


def _row(line: bytes, where: str) -> Any:
    try:
        return loads(line)
    except ValueError as error:
        raise BundleError(f"{where}: not valid JSON: {error}") from None
