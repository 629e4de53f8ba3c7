"""How far a run is, on the console: one bar per rollout step, or a few plain lines where there is no terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from relaxforge.observe.clock import Clock, monotonic


class StepProgress(Protocol):
    """What the conductor and the training loop report. Counts are Sessions."""

    def begin(self, title: str, sessions: int) -> None:
        """Start a step, for example ``step 3/20``, that needs ``sessions`` scored Sessions."""
        ...

    def prepared(self, count: int = 1) -> None:
        """Agents that have sent their first model request."""
        ...

    def scored(self, count: int = 1) -> None:
        """Sessions that have ended with a reward."""
        ...

    def phase(self, name: str) -> None:
        """What happens now: rollout, train, publish, eval, save."""
        ...

    def end(self) -> None: ...


def open_progress() -> StepProgress:
    """A bar on a terminal, plain lines elsewhere; both on stderr, so that stdout stays for results."""
    console = Console(stderr=True)
    return BarProgress(console) if console.is_terminal else LineProgress()


class BarProgress:
    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            TextColumn("{task.fields[phase]:<8}"),
            BarColumn(bar_width=24),
            TextColumn(
                "prepared {task.fields[prepared]}/{task.total:.0f}  scored {task.completed:.0f}/{task.total:.0f}"
            ),
            TimeElapsedColumn(),
            console=console,
            # Lines for a redirected stdout must not end up on the terminal.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task: TaskID | None = None
        self._prepared = 0

    def begin(self, title: str, sessions: int) -> None:
        self.end()
        self._prepared = 0
        self._task = self._progress.add_task(title, total=sessions, prepared=0, phase="rollout")
        self._progress.start()

    def prepared(self, count: int = 1) -> None:
        if self._task is not None:
            self._prepared += count
            self._progress.update(self._task, prepared=self._prepared)

    def scored(self, count: int = 1) -> None:
        if self._task is not None:
            self._progress.advance(self._task, count)

    def phase(self, name: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, phase=name)

    def end(self) -> None:
        if self._task is not None:
            self._progress.update(self._task, phase="done", refresh=True)
            self._progress.stop()
            self._progress.remove_task(self._task)
            self._task = None


@dataclass
class LineProgress:
    """A line when a phase begins and at each quarter of the scored Sessions."""

    clock: Clock = monotonic
    _title: str = ""
    _phase: str = ""
    _total: int = 0
    _prepared: int = 0
    _scored: int = 0
    _start: float = 0.0

    def begin(self, title: str, sessions: int) -> None:
        self._title, self._total, self._prepared, self._scored = title, sessions, 0, 0
        self._start, self._phase = self.clock(), "rollout"

    def prepared(self, count: int = 1) -> None:
        self._prepared += count

    def scored(self, count: int = 1) -> None:
        before, self._scored = self._scored, self._scored + count
        if self._total and 4 * self._scored // self._total > 4 * before // self._total:
            self._say()

    def phase(self, name: str) -> None:
        if name != self._phase:
            self._phase = name
            self._say()

    def end(self) -> None:
        self._phase = ""

    def _say(self) -> None:
        seconds = self.clock() - self._start
        counts = f"prepared {self._prepared}/{self._total} scored {self._scored}/{self._total}"
        sys.stderr.write(f"{self._title} {self._phase}: {counts} ({seconds:.1f} s)\n")
        sys.stderr.flush()
