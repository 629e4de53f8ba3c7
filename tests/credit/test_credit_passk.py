"""pass@k and pass^k against counting every choice of k attempts."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.credit.passk import coverage, pass_at_k, pass_hat_k


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 8))
def test_estimates_equal_the_share_of_choices(successes: list[bool], k: int) -> None:
    n, c = len(successes), sum(successes)
    choices = list(combinations(successes, k))
    if not choices:
        assert pass_at_k(n, c, k) is None
        assert pass_hat_k(n, c, k) is None
        return
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))
    assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, choices)) / len(choices))


def test_too_few_scored_attempts_are_unknown_even_when_all_succeeded() -> None:
    assert pass_at_k(3, 3, 4) is None
    assert pass_hat_k(0, 0, 1) is None


def test_large_counts_stay_exact() -> None:
    assert pass_at_k(10_000, 1, 1) == pytest.approx(1e-4)
    assert pass_at_k(10_000, 9_000, 2_000) == 1.0
    assert pass_hat_k(10_000, 10_000, 5_000) == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(1, 2, 1), (1, -1, 1), (1, 1, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    for estimate in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
            estimate(n, c, k)


def test_coverage_is_the_share_of_scored_attempts() -> None:
    assert coverage(3, 4) == 0.75
    assert coverage(0, 0) is None
    with pytest.raises(ValueError, match="5 scored of 4 attempted"):
        coverage(5, 4)
