"""The summary of repeated attempts: what counts, what does not, and what nobody can know."""

import json
from itertools import product

import pytest

from relaxforge.credit.summary import summarise, wilson


def attempt(task, number, reward, retry=0):
    return {"task_index": task, "attempt_no": number, "retry_index": retry, "reward": reward}


def one_task(*rewards):
    return [attempt(0, number, reward) for number, reward in enumerate(rewards, 1)]


def test_estimates_stand_beside_their_counts():
    found = summarise(one_task(1.0, 0.15, 0.0, 1.0), 4, 1.0)
    assert (found["n"], found["c"], found["attempted"], found["coverage"]) == (4, 2, 4, 1.0)
    assert found["passAtK"] == {"1": 0.5, "2": pytest.approx(5 / 6), "3": 1.0, "4": 1.0}
    assert found["passHatK"] == {"1": 0.5, "2": pytest.approx(1 / 6), "3": 0.0, "4": 0.0}
    assert (found["estimator"], found["threshold"], found["attemptCount"]) == ("unbiased", 1.0, 4)
    assert found["meanReward"] == pytest.approx(2.15 / 4)


def test_fewer_scored_attempts_than_k_say_nothing():
    found = summarise(one_task(None, 0.0, None), 3, 1.0)
    assert found["passAtK"] == {"1": 0.0, "2": None, "3": None}
    assert found["coverage"] == pytest.approx(1 / 3)
    assert found["tasksAtK"] == {"1": 1, "2": 0, "3": 0}


def test_nothing_scored_is_null_and_never_one():
    found = summarise(one_task(None, None), 2, 1.0)
    assert found["passAtK"] == found["passHatK"] == {"1": None, "2": None}
    assert found["interval"] is None
    assert found["meanReward"] is None


def test_partial_credit_is_no_success_unless_the_threshold_says_so():
    rewards = one_task(0.6, 0.4)
    assert summarise(rewards, 2, 1.0)["c"] == 0
    assert summarise(rewards, 2, 0.5)["c"] == 1


def test_two_halves_are_not_one_success():
    assert summarise(one_task(0.5, 0.5), 2, 1.0)["c"] == 0


def test_only_the_last_repetition_of_an_attempt_counts():
    rows = [attempt(0, 1, None), attempt(0, 1, 1.0, retry=1), attempt(0, 2, 0.0)]
    for order in (rows, rows[::-1]):
        found = summarise(order, 2, 1.0)
        assert (found["attempted"], found["n"], found["c"]) == (2, 2, 1)


def test_tasks_with_their_own_n_are_averaged():
    rows = [*one_task(1.0, 1.0), attempt(1, 1, 0.0), attempt(1, 2, None)]
    found = summarise(rows, 2, 1.0)
    assert found["passAtK"] == {"1": 0.5, "2": 1.0}
    assert found["tasksAtK"] == {"1": 2, "2": 1}
    assert [(part["task"], part["n"], part["c"]) for part in found["tasks"]] == [(0, 2, 2), (1, 1, 0)]


@pytest.mark.parametrize(("n", "c"), [(n, c) for n, c in product(range(1, 9), range(9)) if c <= n])
def test_the_interval_holds_the_rate(n, c):
    found = wilson(n, c)
    assert 0.0 <= found["low"] <= c / n <= found["high"] <= 1.0
    assert found["high"] - found["low"] < 1.0


def test_a_known_interval():
    found = wilson(10, 5)
    assert (found["low"], found["high"]) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))


def test_a_summary_is_json():
    assert json.loads(json.dumps(summarise(one_task(1.0), 1, 1.0), allow_nan=False))
    assert summarise([], 3, 1.0)["attempted"] == 0
