"""Active time runs from the lease, stands still while parked, and expires however often it was paused."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.rollout.clock import ActiveClock

PATIENCE_S = 10


class Hand:
    """The time of day, moved by hand."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def hand():
    return Hand()


def test_time_counts_only_while_the_clock_runs(hand):
    clock = ActiveClock(60, hand)
    hand.now_s += 50
    assert clock.spent_s == 0
    clock.run()
    hand.now_s += 10
    assert clock.spent_s == 10
    clock.pause()
    hand.now_s += 1000
    clock.run()
    hand.now_s += 5
    assert clock.spent_s == 15


@given(st.lists(st.tuples(st.sampled_from(["run", "pause"]), st.integers(0, 5)), max_size=20))
def test_running_and_pausing_twice_changes_nothing(moves):
    hand = Hand()
    clock = ActiveClock(1e9, hand)
    running, expected = False, 0
    for move, seconds in moves:
        getattr(clock, move)()
        running = move == "run"
        hand.now_s += seconds
        expected += seconds if running else 0
        assert clock.spent_s == expected


def test_a_spent_budget_has_expired(hand):
    clock = ActiveClock(60, hand)
    clock.run()
    hand.now_s += 60
    asyncio.run(asyncio.wait_for(clock.expired(), PATIENCE_S))


def test_expiry_waits_through_pauses(hand):
    async def main():
        clock = ActiveClock(60, hand)
        expired = asyncio.create_task(clock.expired())
        for _ in range(3):
            await let_others_run()
            clock.run()
            hand.now_s += 19
            clock.pause()
            hand.now_s += 1000
        await let_others_run()
        assert not expired.done()
        clock.run()
        hand.now_s += 3
        clock.pause()
        await asyncio.wait_for(expired, PATIENCE_S)

    asyncio.run(main())


def test_expiry_comes_by_itself_when_the_real_time_is_up():
    async def main():
        clock = ActiveClock(0.02)
        clock.run()
        await asyncio.wait_for(clock.expired(), PATIENCE_S)
        assert clock.spent_s >= 0.02

    asyncio.run(main())


def test_a_clock_that_never_ran_never_expires(hand):
    async def main():
        expired = asyncio.create_task(ActiveClock(0.001, hand).expired())
        await asyncio.wait({expired}, timeout=0.02)
        assert not expired.done()
        expired.cancel()

    asyncio.run(main())


async def let_others_run():
    for _ in range(5):
        await asyncio.sleep(0)
