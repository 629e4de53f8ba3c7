"""Tasks for training Groups: an ordered cursor plus the Tasks that surplus Groups gave back."""

from __future__ import annotations

from collections import deque

from relaxforge.core.errors import TaskError
from relaxforge.core.sessions import Task
from relaxforge.tasks.source import TaskSource


class TaskFeed:
    """Hands out each Task of the dataset in order; what comes back is handed out first."""

    def __init__(self, source: TaskSource) -> None:
        self._source = source
        self._returned: deque[Task] = deque()

    def __len__(self) -> int:
        """Tasks per epoch."""
        return len(self._source)

    def take(self) -> Task:
        return self._returned.popleft() if self._returned else self._source.take(1)[0]

    def give_back(self, task: Task) -> None:
        self._returned.append(task)

    def position(self) -> tuple[dict[str, int], list[int]]:
        """The cursor, and the rows that were taken but not consumed."""
        return self._source.position(), [task.index for task in self._returned]

    def restore(self, position: dict[str, int], unconsumed: list[int]) -> None:
        """Continue where ``position`` was read. Errors: ``TaskError`` when the dataset is another one."""
        self._source.restore(position)
        if strange := [index for index in unconsumed if not 0 <= index < len(self._source)]:
            raise TaskError(f"the state to resume from names row {strange[0]}, but the dataset has {len(self._source)}")
        self._returned = deque(self._source[index] for index in unconsumed)
