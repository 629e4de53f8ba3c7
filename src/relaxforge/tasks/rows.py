"""One dataset row becomes one Task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relaxforge.core.errors import TaskError
from relaxforge.core.sessions import Task

ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class RowShape:
    """Which columns of a row mean what; ``system_prompt`` goes before messages that have no system message."""

    input_key: str = "input"
    metadata_key: str = "metadata"
    label_key: str | None = None
    system_prompt: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(key for key in (self.input_key, self.metadata_key, self.label_key) if key is not None)


def task(row: Any, index: int, where: str, shape: RowShape) -> Task:
    """The Task of one row; ``where`` (``file:line``) opens every error message. Errors: ``TaskError``."""
    if not isinstance(row, dict):
        raise TaskError(f"{where}: a row must be an object, got {_kind(row)}")
    given, metadata = row.get(shape.input_key), row.get(shape.metadata_key)
    if given is None and metadata is None:
        raise TaskError(
            f"{where}: the row has neither messages (--input-key {shape.input_key!r}) nor metadata "
            f"(--metadata-key {shape.metadata_key!r}); its keys are: {', '.join(map(str, row)) or 'none'}"
        )
    if metadata is not None and not isinstance(metadata, dict):
        raise TaskError(f"{where}: {shape.metadata_key!r} must be an object, got {_kind(metadata)}")
    if shape.label_key is not None and shape.label_key not in row:
        raise TaskError(f"{where}: --label-key {shape.label_key!r} is missing; keys: {', '.join(map(str, row))}")
    return Task(
        index=index,
        messages=None if given is None else _messages(given, f"{where}: {shape.input_key!r}", shape.system_prompt),
        metadata=metadata,
        label=None if shape.label_key is None else row[shape.label_key],
    )


def _messages(given: Any, where: str, system_prompt: str | None) -> tuple[dict[str, Any], ...]:
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise TaskError(f"{where} must be a string or a non-empty list of messages, got {_kind(given)}")
    for number, message in enumerate(given):
        _check_message(message, f"{where}[{number}]")
    if system_prompt is not None and given[0]["role"] not in ("system", "developer"):
        given = [{"role": "system", "content": system_prompt}, *given]
    return tuple(given)


def _check_message(message: Any, where: str) -> None:
    # Shallow on purpose: what of this goes into a model request is the agent's choice, and the gateway checks it there.
    if not isinstance(message, dict):
        raise TaskError(f"{where} must be a message object, got {_kind(message)}")
    if message.get("role") not in ROLES:
        raise TaskError(f"{where}.role must be one of {', '.join(ROLES)}, got {message.get('role')!r}")
    content = message.get("content")
    if not isinstance(content, str | list | None):
        raise TaskError(f"{where}.content must be a string or a list of parts, got {_kind(content)}")
    if not content and message["role"] != "assistant":
        raise TaskError(f"{where}.content is empty; a {message['role']} message needs content")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    if isinstance(value, list) and not value:
        return "an empty list"
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
