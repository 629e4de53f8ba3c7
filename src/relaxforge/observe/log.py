"""Structured events: one call writes ``event=... key=value`` to events.log and, where it matters, to the console.

``configure`` is called once, by the program. Everybody else calls ``get_logger`` and names the event first::

    log = get_logger()
    log.info("session_started", session_id=session.id)

Ids that belong to everything that happens inside a block are bound once, with ``bound(group_id=...)``; they follow the
asyncio task, not the thread.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from relaxforge.core.errors import StorageError

CONSOLE_EVENTS = frozenset({"accounting_end"})
"""Events that the integration guide promises on the console, in the form ``AGENTIC ROLLOUT event=... key=value``."""

_LEVELS = {"debug": 10, "info": 20, "warning": 30}
_LOUD = ("warning", "error", "critical")
_LOGFMT = structlog.processors.LogfmtRenderer(key_order=["time", "level", "event"], drop_missing=True)
_CONSOLE_LOGFMT = structlog.processors.LogfmtRenderer(key_order=["event"])


def get_logger() -> FilteringBoundLogger:
    """The logger of the process; usable before and after ``configure``."""
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger


def bound(**ids: Any) -> AbstractContextManager[None]:
    """Add ``ids`` to every event of the block, also in the tasks it starts."""
    return structlog.contextvars.bound_contextvars(**ids)


def configure(events_log: Path | None, level: str = "info") -> None:
    """Send events of at least ``level`` to ``events_log`` (appended; ``None``: the console alone, with tracebacks).

    Errors: ``StorageError`` here, and from any later event, when the file cannot be written.
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _show_on_console if events_log else _show_whole,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.ExceptionRenderer(),
            _LOGFMT,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: EventFile(events_log),
        cache_logger_on_first_use=False,
    )


class EventFile:
    """Where rendered events go: whole lines, appended, one write each, so that a killed run loses none of them."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def msg(self, line: str) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(line + "\n")
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be written: {error.strerror}; free some space and resume"
            ) from error

    debug = info = warning = error = critical = exception = msg


def _show_on_console(_: WrappedLogger, level: str, event: EventDict) -> EventDict:
    if event["event"] in CONSOLE_EVENTS:
        shown = {key: value for key, value in event.items() if key != "level"}
        _line(sys.stdout, f"AGENTIC ROLLOUT {_CONSOLE_LOGFMT(None, level, shown)}")
    elif level in _LOUD:
        shown = {key: value for key, value in event.items() if key not in ("level", "exc_info")}
        _line(sys.stderr, f"{level}: {_CONSOLE_LOGFMT(None, level, shown)}")
    return event


def _show_whole(logger: WrappedLogger, level: str, event: EventDict) -> EventDict:
    """Where no file keeps events, the console is all there is, and a traceback belongs to it."""
    shown = _show_on_console(logger, level, event)
    if event.get("exc_info"):
        _line(sys.stderr, structlog.processors.ExceptionRenderer()(logger, level, {**event})["exception"])
    return shown


def _line(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()
