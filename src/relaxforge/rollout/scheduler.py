"""Which Group does what next, as a pure function: ``step(state, event, now) -> (state, commands)``.

A Group passes ``PREPARE`` (processes start, until each has sent its first request), ``READY`` (waits for its lease),
``RUNTIME`` (requests are served) and ``REWARD``. The first three are resident and share the capacity; Reward does not.
The conductor executes commands and feeds events; nothing here waits, sleeps or knows about processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

HEARTBEAT_S = 30.0


class Phase(StrEnum):
    PREPARE = "prepare"
    READY = "ready"
    RUNTIME = "runtime"
    REWARD = "reward"


RESIDENT = frozenset({Phase.PREPARE, Phase.READY, Phase.RUNTIME})


@dataclass(frozen=True, slots=True)
class Plan:
    """What one step wants.

    ``quota`` Groups make the step complete; ``started`` >= quota is how many may be under way for it; ``capacity``
    bounds the resident ones. With ``replace_lost`` a dropped or filtered Group creates new demand (training); without,
    it counts as done (evaluation). The step trips after ``max_failures`` failed Groups in a row, and after
    ``max_filtered`` filtered ones without an accepted one between them; ``None`` never does.
    """

    quota: int
    started: int
    capacity: int
    replace_lost: bool = True
    max_failures: int | None = None
    max_filtered: int | None = None


Fate = Literal["accepted", "filtered", "failed"]


@dataclass(frozen=True, slots=True)
class GroupReady:
    """All Sessions of the Group have sent their first request."""

    number: int


@dataclass(frozen=True, slots=True)
class GroupEnded:
    """All Sessions of the Group have ended; ``failure`` is the category of the one that dropped it, if any."""

    number: int
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class GroupScored:
    """Reward is done with the Group; ``reason`` says why it was filtered or failed."""

    number: int
    fate: Fate
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = GroupReady | GroupEnded | GroupScored | Tick
EXPECTED_IN: Mapping[type, frozenset[Phase]] = {
    GroupReady: frozenset({Phase.PREPARE}),
    GroupEnded: RESIDENT,
    GroupScored: frozenset({Phase.REWARD}),
}


@dataclass(frozen=True, slots=True)
class StartGroup:
    number: int


@dataclass(frozen=True, slots=True)
class LeaseGroup:
    number: int


@dataclass(frozen=True, slots=True)
class ScoreGroup:
    number: int


@dataclass(frozen=True, slots=True)
class TransferGroup:
    """The Group is part of the step: hand it to whoever consumes the step."""

    number: int


@dataclass(frozen=True, slots=True)
class CancelGroup:
    """The Group is surplus: end its Sessions, give its Task back."""

    number: int


@dataclass(frozen=True, slots=True)
class CloseStep:
    """The quota is met and nothing is left under way."""


@dataclass(frozen=True, slots=True)
class TripStep:
    """Nothing of use came back; ``reason`` is the commonest category of failure, ``None``: all was filtered."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing changed for a while."""


Command = StartGroup | LeaseGroup | ScoreGroup | TransferGroup | CancelGroup | CloseStep | TripStep | Heartbeat


@dataclass(frozen=True, slots=True)
class StepState:
    """One rollout step. ``groups`` holds what is under way, in the order of starting.

    ``reasons`` counts the ``failures_in_a_row`` by category.
    """

    plan: Plan
    next_number: int
    groups: Mapping[int, Phase] = field(default_factory=dict)
    accepted: int = 0
    lost: int = 0
    failures_in_a_row: int = 0
    filtered_in_a_row: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    closed: bool = False
    changed_at: float = 0.0

    @property
    def debt(self) -> int:
        """Groups that the quota still lacks."""
        done = self.accepted if self.plan.replace_lost else self.accepted + self.lost
        return max(0, self.plan.quota - done)

    @property
    def resident(self) -> int:
        return sum(phase in RESIDENT for phase in self.groups.values())

    def count(self, phase: Phase) -> int:
        return sum(held is phase for held in self.groups.values())


def open_step(plan: Plan, first_number: int, now: float) -> tuple[StepState, list[Command]]:
    """Begin a step whose Groups are numbered from ``first_number`` on."""
    return _settle(StepState(plan, first_number, changed_at=now), [])


def step(state: StepState, event: Event, now: float) -> tuple[StepState, list[Command]]:
    """Take one event in. Late news, about Groups that are gone or further than that, changes nothing."""
    if isinstance(event, Tick):
        if state.closed or now - state.changed_at < HEARTBEAT_S:
            return state, []
        return replace(state, changed_at=now), [Heartbeat()]
    if state.closed or state.groups.get(event.number) not in EXPECTED_IN[type(event)]:
        return state, []
    state = replace(state, changed_at=now)
    if isinstance(event, GroupReady):
        return _settle(_move(state, event.number, Phase.READY), [])
    if isinstance(event, GroupScored):
        transfer: list[Command] = [TransferGroup(event.number)] if event.fate == "accepted" else []
        return _settle(_scored(state, event), transfer)
    if event.failure is not None:
        return _settle(_failed(state, event.number, event.failure), [])
    return _settle(_move(state, event.number, Phase.REWARD), [ScoreGroup(event.number)])


def _scored(state: StepState, event: GroupScored) -> StepState:
    if event.fate == "failed":
        return _failed(state, event.number, event.reason)
    state = replace(_forget(state, event.number), failures_in_a_row=0, reasons={})
    if event.fate == "accepted":
        return replace(state, accepted=state.accepted + 1, filtered_in_a_row=0)
    return replace(state, lost=state.lost + 1, filtered_in_a_row=state.filtered_in_a_row + 1)


def _failed(state: StepState, number: int, reason: str) -> StepState:
    reasons = Counter(state.reasons)
    reasons[reason] += 1
    return replace(
        _forget(state, number),
        lost=state.lost + 1,
        failures_in_a_row=state.failures_in_a_row + 1,
        reasons=dict(reasons),
    )


def _settle(state: StepState, commands: list[Command]) -> tuple[StepState, list[Command]]:
    """Whatever follows from a state: trip, close, lease what is ready, start what is wanted."""
    if _reached(state.plan.max_failures, state.failures_in_a_row):
        reason = max(state.reasons, key=lambda key: state.reasons[key])
        return _close(state, [*commands, TripStep(reason)])
    if _reached(state.plan.max_filtered, state.filtered_in_a_row):
        return _close(state, [*commands, TripStep(None)])
    if state.debt == 0:
        return _close(state, [*commands, CloseStep()])
    for number, phase in state.groups.items():
        if phase is Phase.READY:
            state = _move(state, number, Phase.RUNTIME)
            commands.append(LeaseGroup(number))
    while _wants_more(state):
        number = state.next_number
        groups = {**state.groups, number: Phase.PREPARE}
        state = replace(state, groups=groups, next_number=number + 1)
        commands.append(StartGroup(number))
    return state, commands


def _reached(limit: int | None, count: int) -> bool:
    return limit is not None and count >= limit


def _wants_more(state: StepState) -> bool:
    surplus = state.plan.started - state.plan.quota
    return len(state.groups) < state.debt + surplus and state.resident < state.plan.capacity


def _close(state: StepState, commands: list[Command]) -> tuple[StepState, list[Command]]:
    cancels: list[Command] = [CancelGroup(number) for number in state.groups]
    return replace(state, groups={}, closed=True), [*cancels, *commands]


def _move(state: StepState, number: int, phase: Phase) -> StepState:
    return replace(state, groups={**state.groups, number: phase})


def _forget(state: StepState, number: int) -> StepState:
    return replace(state, groups={key: phase for key, phase in state.groups.items() if key != number})


def check_integrity(state: StepState) -> None:
    """Raise ``AssertionError`` when a step breaks its own rules."""
    if state.resident > state.plan.capacity:
        raise AssertionError(f"{state.resident} Groups are resident, the capacity is {state.plan.capacity}")
    if state.plan.replace_lost and state.accepted > state.plan.quota:
        raise AssertionError(f"{state.accepted} Groups were accepted, the quota is {state.plan.quota}")
    if state.closed and state.groups:
        raise AssertionError(f"the step is closed and still holds Groups {sorted(state.groups)}")
    if not state.closed and not state.groups and state.debt:
        raise AssertionError(f"the step lacks {state.debt} Groups and nothing is under way")
