"""One step in progress: executes the scheduler's commands, feeds it events, settles every Session exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from relaxforge.core.errors import CircuitOpen, RelaxForgeError
from relaxforge.core.samples import SampleGroup
from relaxforge.core.sessions import Mode, Task
from relaxforge.forest.integrity import check_integrity
from relaxforge.observe.clock import Clock, monotonic
from relaxforge.observe.log import get_logger
from relaxforge.observe.progress import StepProgress
from relaxforge.rollout import scheduler
from relaxforge.rollout.factory import SessionFactory
from relaxforge.rollout.group import RunningGroup
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.samples import sample_group
from relaxforge.rollout.scheduler import (
    CancelGroup,
    Command,
    Event,
    GroupEnded,
    GroupReady,
    GroupScored,
    Heartbeat,
    LeaseGroup,
    Plan,
    ScoreGroup,
    StartGroup,
    StepState,
    Tick,
    TransferGroup,
    TripStep,
)
from relaxforge.rollout.scoring import FILTER_FLAG, Scorer
from relaxforge.rollout.session import Session
from relaxforge.rollout.supervise import Supervisor

log = get_logger()

EXAMPLE = 400
"""Characters of a failure that the end of a run quotes."""

REWARDS = 5
"""Different rewards of one Group that it quotes."""


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A Group that made it into its step: what is trained, and what became of its Sessions."""

    samples: SampleGroup
    outcomes: tuple[Outcome, ...]


def not_repeated(task: Task) -> None:
    """What an evaluation does with a Task whose Group was surplus."""


async def not_trained(group: ScoredGroup) -> None:
    """What an evaluation does with an accepted Group."""


@dataclass(frozen=True, slots=True)
class StepOrder:
    """One rollout step or evaluation.

    ``take`` hands out the next Task, ``keep`` writes an ended Session down, ``give_back`` receives Tasks whose Groups
    were surplus, ``transfer`` receives accepted Groups and may hold the conductor back until there is room.
    """

    rollout_id: int
    mode: Mode
    plan: Plan
    group_size: int
    take: Callable[[], Task]
    keep: Callable[[Outcome], None]
    give_back: Callable[[Task], None] = not_repeated
    transfer: Callable[[ScoredGroup], Awaitable[None]] = not_trained


@dataclass(slots=True)
class StepSummary:
    """Counts of one step. ``failures`` by category, ``statuses`` of all Sessions, ``tokens`` as in the dump."""

    rollout_id: int
    groups: int = 0
    rows: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Rooms:
    """What a step works with. ``check`` verifies the invariants of scheduler and forests as it goes (slow).

    Each of ``vital`` returns when something is gone that no step can do without (``Engine.lost``), with the error that
    the step then ends with.
    """

    factory: SessionFactory
    supervisor: Supervisor
    scorer: Scorer
    progress: StepProgress
    clock: Clock = monotonic
    check: bool = False
    vital: tuple[Callable[[], Awaitable[RelaxForgeError]], ...] = ()


class Step:
    """The state of one step and the tasks that carry it. Groups end through ``_finish``, and only there."""

    def __init__(self, order: StepOrder, first_number: int, rooms: Rooms) -> None:
        self.order = order
        self.summary = StepSummary(order.rollout_id)
        self.state: StepState
        self._rooms = rooms
        self._events: asyncio.Queue[Event | BaseException] = asyncio.Queue()
        self._groups: dict[int, RunningGroup] = {}
        self._scored: dict[int, ScoredGroup] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._scores: set[asyncio.Task[None]] = set()
        self._last_words: dict[str, str] = {}
        self._discarded: Counter[tuple[float, ...]] = Counter()
        self.state, self._commands = scheduler.open_step(order.plan, first_number, rooms.clock())

    async def run(self) -> None:
        """Until the step closes. Whatever happens, no agent of the step is left behind."""
        watches = [asyncio.create_task(self._watch(lost)) for lost in self._rooms.vital]
        try:
            await self._execute(self._commands)
            while not self.state.closed:
                await self._take(await self._next_event())
        except BaseException:
            for group in self._groups.values():
                group.halt("surplus")
            for scoring in self._scores:
                scoring.cancel()
            raise
        finally:
            for watch in watches:
                watch.cancel()
            await self._wind_up()
        self._raise_late_errors()

    async def _wind_up(self) -> None:
        """Wait for everything that was started; Groups whose score came too late are surplus."""
        while self._tasks or self._groups:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for group in list(self._groups.values()):
                self._finish(group, group.stopped_by or "surplus")

    def debug_state(self) -> dict[str, Any]:
        return {
            "active_rollout_id": self.order.rollout_id,
            "mode": self.order.mode,
            "debt": self.state.debt,
            "resident": self.state.resident,
            **{str(phase): self.state.count(phase) for phase in scheduler.Phase},
            "accepted": self.state.accepted,
            "lost": self.state.lost,
            "groups": {
                group.group_id: {
                    session.session_id: {
                        "requests": len(session.records),
                        "leased": session.lease.is_set(),
                        "active_s": round(session.clock.spent_s, 3),
                    }
                    for session in group.sessions
                }
                for group in self._groups.values()
            },
        }

    async def _watch(self, lost: Callable[[], Awaitable[RelaxForgeError]]) -> None:
        self._events.put_nowait(await lost())

    async def _next_event(self) -> Event:
        try:
            event = await asyncio.wait_for(self._events.get(), scheduler.HEARTBEAT_S)
        except TimeoutError:
            return Tick()
        if isinstance(event, BaseException):
            raise event
        return event

    async def _take(self, event: Event) -> None:
        self.state, commands = scheduler.step(self.state, event, self._rooms.clock())
        if self._rooms.check:
            scheduler.check_integrity(self.state)
        await self._execute(commands)

    async def _execute(self, commands: list[Command]) -> None:
        trip: TripStep | None = None
        for command in commands:
            match command:
                case StartGroup(number):
                    self._start(number)
                case LeaseGroup(number) | CancelGroup(number) if number not in self._groups:
                    pass  # It has ended; the event that says so is still waiting behind the one that led here.
                case LeaseGroup(number):
                    self._groups[number].lease()
                case ScoreGroup(number):
                    self._scores.add(self._spawn(self._score(self._groups[number])))
                case TransferGroup(number):
                    await self._transfer(number)
                case CancelGroup(number):
                    self._groups[number].halt("surplus")
                case TripStep():
                    trip = command
                case Heartbeat():
                    log.info("idle_heartbeat", rollout=self.order.rollout_id, debt=self.state.debt,
                             resident=self.state.resident)  # fmt: skip
                case scheduler.CloseStep():
                    pass
        if trip is not None:
            raise CircuitOpen(self._all_filtered() if trip.reason is None else self._all_failed(trip.reason))

    def _all_failed(self, reason: str) -> str:
        return (
            f"{self.state.failures_in_a_row} Groups failed in a row and nothing else came back; commonest reason: "
            f"{reason} ({self.state.reasons[reason]} times){self._example(reason)}. `relaxforge show` with the run "
            "directory lists all; mend that, or raise --max-consecutive-failed-groups"
        )

    def _all_filtered(self) -> str:
        rewards, times = self._discarded.most_common(1)[0]
        each = ", ".join(f"{count} x {reward:g}" for reward, count in Counter(rewards).most_common(REWARDS))
        more = ", ..." if len(set(rewards)) > REWARDS else ""
        return (
            f"{FILTER_FLAG} discarded {self._discarded.total()} Groups in a row; the rewards in most of them ({times}) "
            f"were {each}{more}. Give Tasks and a reward that tell the Sessions of a Group apart, another filter, or "
            "raise --max-consecutive-filtered-groups"
        )

    def _example(self, category: str) -> str:
        words = self._last_words.get(category)
        return f", the last one: {words if len(words) <= EXAMPLE else words[:EXAMPLE] + '...'}" if words else ""

    def _start(self, number: int) -> None:
        group = self._rooms.factory.group(number, self.order.mode, self.order.take(), self.order.group_size)
        self._groups[number] = group
        self._spawn(self._run_group(group))

    async def _run_group(self, group: RunningGroup) -> None:
        barrier = asyncio.create_task(self._announce_ready(group))
        try:
            runs = (self._run_session(group, session) for session in group.sessions)
            errors = await asyncio.gather(*runs, return_exceptions=True)
        finally:
            barrier.cancel()
        if error := next((error for error in errors if error is not None), None):
            raise error
        if group.stopped_by == "surplus":
            self._finish(group, "surplus")
            return
        failure = group.failure
        group.outcomes.sort(key=lambda outcome: group.sessions.index(outcome.session))
        if failure is not None and self._rooms.scorer.judges(group.outcomes):
            failure = None  # Reward looks at what they left, and says that they failed.
        if failure is not None:
            self._finish(group, group.stopped_by or "group_dropped")
        self._events.put_nowait(GroupEnded(group.number, failure))

    async def _announce_ready(self, group: RunningGroup) -> None:
        """The first-request barrier: every Session has sent a model request."""
        for session in group.sessions:
            await session.first_request.wait()
            self._rooms.progress.prepared()
        self._events.put_nowait(GroupReady(group.number))

    async def _run_session(self, group: RunningGroup, session: Session) -> None:
        try:
            outcome = await self._rooms.supervisor.run(session, group.stop)
        except BaseException:
            group.halt("surplus")  # The step is about to fail; its other agents must not go on meanwhile.
            raise
        group.outcomes.append(outcome)
        if outcome.failure is not None:
            log.info("session_failed", session=session.session_id, category=str(outcome.failure.category),
                     message=outcome.failure.message.splitlines()[0])  # fmt: skip
            group.halt(f"group_dropped: {session.session_id} {outcome.failure.category}")

    async def _score(self, group: RunningGroup) -> None:
        score = await self._rooms.scorer.score(group.outcomes)
        if group.stopped_by == "surplus":
            self._finish(group, "surplus")
            return
        if score.fate == "accepted":
            self._scored[group.number] = ScoredGroup(
                sample_group(group.group_id, group.outcomes), tuple(group.outcomes)
            )
        else:
            if score.fate == "filtered":
                self._discarded[tuple(sorted(outcome.reward or 0.0 for outcome in group.outcomes))] += 1
            self._finish(group, score.reason)
        self._rooms.progress.scored(len(group.outcomes))
        self._events.put_nowait(GroupScored(group.number, score.fate, group.failure or score.reason))

    async def _transfer(self, number: int) -> None:
        scored = self._scored.pop(number)
        self._discarded.clear()
        self._finish(self._groups[number], None)
        self.summary.groups += 1
        self.summary.rows += len(scored.samples.contexts)
        await self.order.transfer(scored)

    def _finish(self, group: RunningGroup, reason: str | None) -> None:
        """Settle a Group: every Session of it is written down, surplus Tasks go back."""
        if self._groups.pop(group.number, None) is None:
            return
        if reason is not None:
            group.settle(reason)
        if reason == "surplus":
            self.order.give_back(group.task)
        for outcome in sorted(group.outcomes, key=lambda ended: ended.session.session_id):
            self._count(outcome)
            self.order.keep(outcome)
            self._spawn(self._rooms.supervisor.tidy(outcome))

    def _count(self, outcome: Outcome) -> None:
        if self._rooms.check:
            check_integrity(outcome.session.forest)
        tokens = outcome.tokens
        self.summary.statuses[str(outcome.status)] += 1
        if outcome.failure is not None:
            self.summary.failures[str(outcome.failure.category)] += 1
            self._last_words[str(outcome.failure.category)] = outcome.failure.message.partition("\n")[0]
        self.summary.tokens.update(
            sampled=tokens.sampled, trained=tokens.trained, undelivered=tokens.undelivered, repeats=tokens.repeats,
            **{f"masked/{reason}": count for reason, count in tokens.masked.items()},
        )  # fmt: skip

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._landed)
        return task

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._scores.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._events.put_nowait(error)

    def _raise_late_errors(self) -> None:
        """An error of a task that ended after the step closed is an error of the step."""
        while not self._events.empty():
            if isinstance(late := self._events.get_nowait(), BaseException):
                raise late
