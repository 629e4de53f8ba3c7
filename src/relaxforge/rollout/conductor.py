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

    def __init__(self, rooms: Rooms) -> None:
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
        _announce_start(order)
        step = self._step = Step(order, self._next[order.mode], self._rooms)
        try:
            await step.run()
        finally:
            self._next[order.mode] = step.state.next_number
            self._step = None
        _announce_end(order, step)
        return step.summary

    def debug_state(self) -> dict[str, Any]:
        """What is resident right now, for ``/debug_state``. Session secrets are not part of it."""
        return self._step.debug_state() if self._step is not None else {"active_rollout_id": None}


def _announce_start(order: StepOrder) -> None:
    sessions = order.plan.quota * order.group_size
    if order.mode == "eval":
        log.info("evaluation_start", rollout=order.rollout_id, sessions=sessions)
        return
    log.info(
        "accounting_start", rollout=order.rollout_id, sessions=sessions, groups=order.plan.quota, final_backfill=False
    )


def _announce_end(order: StepOrder, step: Step) -> None:
    if order.mode == "eval":
        log.info("evaluation_end", rollout=order.rollout_id, sessions=sum(step.summary.statuses.values()))
        return
    log.info(
        "accounting_end",
        rollout=order.rollout_id,
        groups=step.summary.groups,
        rows=step.summary.rows,
        debt=step.state.debt,
        resident_groups=step.state.resident,
        interrupted_groups=0,
    )
