"""The conductor: runs one step after the other and keeps the numbers of Groups going.

Prepare -> Runtime -> Reward -> Transfer. Training and evaluation differ only in their ``StepOrder``.
"""

from __future__ import annotations

from typing import Any

from relaxforge.observe.log import get_logger
from relaxforge.rollout.step import Rooms, Step, StepOrder, StepSummary

log = get_logger()


class Conductor:
    """Runs steps. Nothing else starts agents, and every Session that it starts reaches ``StepOrder.keep``."""

    def __init__(
        self,
        rooms: Rooms,
    ) -> None:
        self._rooms = rooms
        self._next = {"train": 0, "eval": 0}
        self._step: Step | None = None

    def number_from(self, number: int) -> None:
        """Continue the numbers of training Groups after a resume."""
        self._next["train"] = number

    @property
    def next_number(self) -> int:
        """The number of the next training Group."""
        return self._next["train"]

    async def run(self, order: StepOrder) -> StepSummary:
        """Run one step to its end. Errors: ``CircuitOpen``, ``StorageError``; agents are ended either way."""
        log.info(
            "accounting_start", rollout=order.rollout_id, sessions=order.plan.quota * order.group_size,
            groups=order.plan.quota, final_backfill=False,
        )  # fmt: skip
        step = self._step = Step(order, self._next[order.mode], self._rooms)
        try:
            await step.run()
        finally:
            self._next[order.mode] = step.state.next_number
            self._step = None
        summary = step.summary
        log.info(
            "accounting_end", rollout=order.rollout_id, groups=summary.groups, rows=summary.rows, debt=step.state.debt,
            resident_groups=step.state.resident, interrupted_groups=0,
        )  # fmt: skip
        return summary

    def debug_state(self) -> dict[str, Any]:
        """What is resident right now, for ``/debug_state``. Session secrets are not part of it."""
        return self._step.debug_state() if self._step is not None else {"active_rollout_id": None}
