"""The scheduler's promises, whatever happens in whichever order."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.rollout.scheduler import (
    HEARTBEAT_S,
    CancelGroup,
    CloseStep,
    GroupEnded,
    GroupReady,
    GroupScored,
    Heartbeat,
    LeaseGroup,
    Phase,
    Plan,
    ScoreGroup,
    StartGroup,
    Tick,
    TransferGroup,
    TripStep,
    check_integrity,
    open_step,
    step,
)

CATEGORIES = ("agent_error", "agent_timeout", "no_request")


class Conductor:
    """Feeds events, keeps what was commanded, and checks the promises after every event."""

    def __init__(self, plan: Plan, first: int = 0) -> None:
        self.plan = plan
        self.started: list[int] = []
        self.ready: set[int] = set()
        self.leased: list[int] = []
        self.scoring: list[int] = []
        self.ends: dict[int, list[str]] = {}
        self.closings: list[object] = []
        self.heartbeats = 0
        self.state, commands = open_step(plan, first, now=0.0)
        self._obey(commands)

    def feed(self, event, now: float = 0.0):
        before = self.state
        self.state, commands = step(self.state, event, now)
        known = getattr(event, "number", None) in before.groups
        if known and isinstance(event, GroupReady):
            self.ready.add(event.number)
        if known and event.number not in self.state.groups and not isinstance(event, GroupReady):
            fate = event.fate if isinstance(event, GroupScored) else "failed"
            if fate != "accepted" and not any(command == CancelGroup(event.number) for command in commands):
                self._end(event.number, fate)
        self._obey(commands)
        return commands

    def _obey(self, commands):
        for command in commands:
            match command:
                case StartGroup(number):
                    self.started.append(number)
                case LeaseGroup(number):
                    assert number in self.ready, "a lease before the first-request barrier"
                    self.leased.append(number)
                case ScoreGroup(number):
                    self.scoring.append(number)
                case TransferGroup(number):
                    self._end(number, "transferred")
                case CancelGroup(number):
                    self._end(number, "cancelled")
                case CloseStep() | TripStep():
                    self.closings.append(command)
                case Heartbeat():
                    self.heartbeats += 1
        self.check()

    def _end(self, number, how):
        self.ends.setdefault(number, []).append(how)

    def check(self):
        check_integrity(self.state)
        assert self.state.resident <= self.plan.capacity
        assert self.started == sorted(set(self.started)), "a number was given twice"
        assert len(self.leased) == len(set(self.leased))
        assert len(self.scoring) == len(set(self.scoring))
        assert all(len(ways) == 1 for ways in self.ends.values()), "a Group ended twice"
        assert set(self.ends) | set(self.state.groups) == set(self.started), "a Group vanished"
        assert len(self.closings) == self.state.closed
        transferred = self.count("transferred")
        assert transferred == self.state.accepted
        if self.plan.replace_lost:
            assert transferred <= self.plan.quota
        if not self.state.closed:
            assert not (self._has_demand() and self.state.resident < self.plan.capacity), "demand waits for nothing"
            assert not self.state.count(Phase.READY), "a ready Group waits for nothing"

    def _has_demand(self):
        return len(self.state.groups) < self.state.debt + self.plan.started - self.plan.quota

    def count(self, how):
        return sum(ways == [how] for ways in self.ends.values())


plans = st.builds(
    lambda quota, surplus, capacity, replace_lost, max_failures, max_filtered: Plan(
        quota, quota + surplus, capacity, replace_lost, max_failures, max_filtered
    ),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(1, 6),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 4)),
    st.one_of(st.none(), st.integers(1, 4)),
)
failures = st.one_of(st.none(), st.sampled_from(CATEGORIES))
fates = st.sampled_from(["accepted", "filtered", "failed"])


def events(numbers):
    return st.one_of(
        st.builds(GroupReady, numbers),
        st.builds(GroupEnded, numbers, failures),
        st.builds(GroupScored, numbers, fates, st.sampled_from(CATEGORIES)),
        st.just(Tick()),
    )


@given(plan=plans, news=st.lists(events(st.integers(0, 12)), max_size=60))
def test_any_news_in_any_order_breaks_no_promise(plan, news):
    """Late, repeated and impossible events included: ``Conductor`` checks after each."""
    conductor = Conductor(plan)
    for event in news:
        conductor.feed(event)


@given(plan=plans, data=st.data())
def test_a_step_of_groups_that_all_come_through_closes_when_its_quota_is_met(plan, data):
    conductor = Conductor(plan, first=data.draw(st.integers(0, 100)))
    for _ in range(1000):
        if conductor.state.closed:
            break
        number = data.draw(st.sampled_from(sorted(conductor.state.groups)))
        match conductor.state.groups[number]:
            case Phase.PREPARE:
                conductor.feed(GroupReady(number))
            case Phase.RUNTIME:
                conductor.feed(GroupEnded(number))
            case Phase.REWARD:
                conductor.feed(GroupScored(number, "accepted"))
    assert conductor.closings == [CloseStep()]
    assert conductor.count("transferred") == plan.quota
    assert set(conductor.leased) >= {number for number, ways in conductor.ends.items() if ways == ["transferred"]}
    assert len(conductor.started) <= plan.started


@given(plan=plans, data=st.data())
def test_every_step_ends_however_its_groups_fare(plan, data):
    conductor = Conductor(plan)
    fates = data.draw(st.lists(st.sampled_from(["accepted", "filtered", "failed", "crashed"]), max_size=40))
    for fate in [*fates, *["accepted"] * (plan.quota + plan.started)]:
        if conductor.state.closed:
            break
        number = data.draw(st.sampled_from(sorted(conductor.state.groups)))
        if fate == "crashed" and conductor.state.groups[number] is not Phase.REWARD:
            conductor.feed(GroupEnded(number, "agent_error"))
            continue
        conductor.feed(GroupReady(number))
        conductor.feed(GroupEnded(number))
        conductor.feed(GroupScored(number, "filtered" if fate == "crashed" else fate, "agent_error"))
    assert conductor.state.closed
    if not plan.replace_lost and CloseStep() in conductor.closings:
        assert conductor.state.accepted + conductor.state.lost == plan.quota


def run_through(conductor, number, fate="accepted", reason=""):
    conductor.feed(GroupReady(number))
    conductor.feed(GroupEnded(number))
    return conductor.feed(GroupScored(number, fate, reason))


def test_capacity_bounds_what_is_resident_and_reward_does_not_count():
    conductor = Conductor(Plan(quota=3, started=3, capacity=1))
    assert conductor.started == [0]
    conductor.feed(GroupReady(0))
    assert conductor.started == [0]
    conductor.feed(GroupEnded(0))
    assert conductor.started == [0, 1]
    assert conductor.state.count(Phase.REWARD) == 1


@pytest.mark.parametrize("fate", ["filtered", "failed"])
def test_a_lost_group_is_replaced_by_a_new_one(fate):
    conductor = Conductor(Plan(quota=1, started=1, capacity=1))
    commands = run_through(conductor, 0, fate)
    assert commands == [StartGroup(1)]
    assert run_through(conductor, 1) == [TransferGroup(1), CloseStep()]


def test_surplus_groups_are_cancelled_once_the_quota_is_met_wherever_they_are():
    conductor = Conductor(Plan(quota=1, started=4, capacity=4))
    conductor.feed(GroupReady(1))
    conductor.feed(GroupReady(2))
    conductor.feed(GroupEnded(2))
    assert set(run_through(conductor, 3)) == {
        CancelGroup(0), CancelGroup(1), CancelGroup(2), TransferGroup(3), CloseStep(),
    }  # fmt: skip
    assert conductor.feed(GroupScored(2, "accepted")) == []


def test_a_step_trips_after_failures_in_a_row_and_names_the_commonest_reason_among_them():
    conductor = Conductor(Plan(quota=2, started=2, capacity=2, max_failures=3))
    conductor.feed(GroupEnded(0, "agent_timeout"))
    conductor.feed(GroupEnded(1, "agent_timeout"))
    run_through(conductor, 2)
    assert conductor.state.failures_in_a_row == 0
    for number, reason in ((3, "no_request"), (4, "agent_error"), (5, "no_request")):
        conductor.feed(GroupEnded(number, reason))
    assert conductor.closings == [TripStep("no_request")]
    assert conductor.state.reasons == {"no_request": 2, "agent_error": 1}


def test_a_filtered_group_is_no_failure():
    conductor = Conductor(Plan(quota=1, started=1, capacity=1, max_failures=2))
    for number in range(6):
        if number % 2:
            run_through(conductor, number, "filtered")
        else:
            conductor.feed(GroupEnded(number, "agent_error"))
    assert not conductor.state.closed


def test_a_step_trips_when_a_filter_keeps_nothing_whatever_fails_between():
    conductor = Conductor(Plan(quota=2, started=2, capacity=2, max_failures=2, max_filtered=3))
    run_through(conductor, 0, "filtered")
    run_through(conductor, 1)
    assert conductor.state.filtered_in_a_row == 0
    for number in (2, 4, 6):
        assert conductor.closings == []
        conductor.feed(GroupEnded(number - 1 if number > 2 else number + 1, "agent_error"))
        run_through(conductor, number, "filtered")
    assert conductor.closings == [TripStep(None)]


def test_groups_that_fail_in_reward_count_for_the_breaker():
    conductor = Conductor(Plan(quota=1, started=1, capacity=1, max_failures=2))
    run_through(conductor, 0, "failed", "verifier_error")
    run_through(conductor, 1, "failed", "verifier_error")
    assert conductor.closings == [TripStep("verifier_error")]


def test_an_evaluation_counts_lost_groups_as_done_and_starts_each_of_its_groups_once():
    conductor = Conductor(Plan(quota=4, started=4, capacity=2, replace_lost=False))
    conductor.feed(GroupEnded(0, "agent_error"))
    run_through(conductor, 1)
    run_through(conductor, 2, "failed", "verifier_error")
    assert run_through(conductor, 3) == [TransferGroup(3), CloseStep()]
    assert conductor.started == [0, 1, 2, 3]
    assert Counter(how for ways in conductor.ends.values() for how in ways) == {"failed": 2, "transferred": 2}


def test_a_group_that_is_ready_twice_is_leased_once_and_stays_where_it_is():
    conductor = Conductor(Plan(quota=1, started=1, capacity=1))
    assert conductor.feed(GroupReady(0)) == [LeaseGroup(0)]
    assert conductor.feed(GroupReady(0)) == []
    conductor.feed(GroupEnded(0))
    assert conductor.feed(GroupReady(0)) == []
    assert conductor.feed(GroupEnded(0, "agent_error")) == []
    assert conductor.state.groups == {0: Phase.REWARD}


def test_a_heartbeat_comes_only_after_a_quiet_while():
    conductor = Conductor(Plan(quota=1, started=1, capacity=1))
    assert conductor.feed(Tick(), now=HEARTBEAT_S - 1) == []
    assert conductor.feed(Tick(), now=HEARTBEAT_S) == [Heartbeat()]
    assert conductor.feed(Tick(), now=HEARTBEAT_S + 1) == []
    conductor.feed(GroupReady(0), now=1.5 * HEARTBEAT_S)
    assert conductor.feed(Tick(), now=2 * HEARTBEAT_S) == []
    assert conductor.feed(Tick(), now=2.5 * HEARTBEAT_S) == [Heartbeat()]


def test_numbers_go_on_where_the_last_step_stopped():
    conductor = Conductor(Plan(quota=2, started=2, capacity=2), first=40)
    assert conductor.started == [40, 41]
    assert conductor.state.next_number == 42


def test_the_integrity_check_finds_a_step_that_stands_still():
    state, _ = open_step(Plan(quota=1, started=1, capacity=1), 0, 0.0)
    object.__setattr__(state, "groups", {})
    with pytest.raises(AssertionError, match="lacks 1 Groups and nothing is under way"):
        check_integrity(state)
