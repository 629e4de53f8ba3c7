"""An endless, resumable queue of Tasks over a finite dataset."""

from __future__ import annotations

import random
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from relaxforge.core.errors import TaskError
from relaxforge.core.sessions import Task
from relaxforge.tasks.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Position:
    """How far a run has come: ``index`` Tasks of ``epoch`` are taken, out of ``size`` in the dataset."""

    epoch: int
    index: int
    size: int


class TaskSource:
    """A cursor over the dataset that starts the next epoch by itself.

    With ``shuffle`` the order of an epoch depends only on ``seed``, the epoch and the number of rows, so a restored
    position continues exactly where the saved one stopped.
    """

    def __init__(self, dataset: Dataset, *, shuffle: bool = False, seed: int = 42) -> None:
        self._dataset = dataset
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = 0
        self._index = 0
        self._order = self._order_of(0)

    def __len__(self) -> int:
        """Tasks per epoch."""
        return len(self._dataset)

    def __getitem__(self, task_index: int) -> Task:
        """A Task by its row: how a resumed run finds the ones that were taken but not consumed."""
        return self._dataset[task_index]

    def take(self, count: int) -> list[Task]:
        """The next ``count`` Tasks, from the following epochs where this one ends."""
        taken = []
        for _ in range(count):
            if self._index == len(self._dataset):
                self._begin(self._epoch + 1, 0)
            taken.append(self._dataset[self._order[self._index]])
            self._index += 1
        return taken

    def position(self) -> dict[str, int]:
        """What ``restore`` needs, as plain JSON values."""
        return asdict(Position(self._epoch, self._index, len(self._dataset)))

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from a saved position. Errors: ``TaskError`` when the dataset is not the one it was saved with."""
        try:
            position = Position(**saved)
        except TypeError as error:
            raise TaskError(f"the position to resume from is not one: {dict(saved)}") from error
        if position.size != len(self._dataset):
            raise TaskError(
                f"{self._dataset.path} has {len(self._dataset)} rows, but the position to resume from was saved with "
                f"{position.size}; resume with the same --prompt-data or start a new run"
            )
        self._begin(position.epoch, position.index)

    def _begin(self, epoch: int, index: int) -> None:
        if epoch != self._epoch:
            self._order = self._order_of(epoch)
        self._epoch, self._index = epoch, index

    def _order_of(self, epoch: int) -> array[int]:
        order = array("q", range(len(self._dataset)))
        if self._shuffle:
            random.Random(f"{self._seed}:{epoch}").shuffle(order)  # noqa: S311 - an order, not a secret
        return order
