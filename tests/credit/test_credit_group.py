"""Group comparison: properties of the advantages, whatever the rewards."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.credit.config import CreditConfig
from relaxforge.credit.filters import nonzero_std
from relaxforge.credit.group import STD_FLOOR, group_advantages

GRPO = CreditConfig()
CENTRED = CreditConfig(disable_grpo_std_normalization=True)
PLAIN = CreditConfig(disable_rewards_normalization=True)

REWARDS = st.floats(-1e6, 1e6)
GROUPS = st.dictionaries(st.integers(0, 99).map(lambda index: f"train-g000001-{index:02d}"), REWARDS, min_size=1)


def test_the_published_formula_on_known_numbers() -> None:
    rewards = {"a": 1.0, "b": 0.0, "c": 0.0, "d": 1.0}
    std = statistics.stdev(rewards.values())
    expected = {"a": 0.5, "b": -0.5, "c": -0.5, "d": 0.5}
    assert group_advantages(rewards, CENTRED) == expected
    assert group_advantages(rewards, GRPO) == {name: value / (std + STD_FLOOR) for name, value in expected.items()}
    assert group_advantages(rewards, PLAIN) == rewards


def test_a_group_of_one_is_centred_and_an_empty_one_stays_empty() -> None:
    assert group_advantages({"a": 0.7}, GRPO) == {"a": 0.0}
    assert group_advantages({"a": 0.7}, PLAIN) == {"a": 0.7}
    assert group_advantages({}, GRPO) == {}


@given(GROUPS)
def test_advantages_sum_to_zero_and_keep_the_order_of_rewards(rewards: dict[str, float]) -> None:
    for config in (GRPO, CENTRED):
        advantages = group_advantages(rewards, config)
        size = max(1.0, *(abs(value) for value in [*rewards.values(), *advantages.values()]))
        assert math.fsum(advantages.values()) == pytest.approx(0.0, abs=1e-9 * size * len(rewards))
        by_reward = sorted(rewards, key=lambda name: rewards[name])
        ordered = [advantages[name] for name in by_reward]
        assert ordered == sorted(ordered)


@given(GROUPS, st.randoms())
def test_the_order_of_sessions_does_not_matter(rewards: dict[str, float], random: object) -> None:
    names = list(rewards)
    random.shuffle(names)  # type: ignore[attr-defined]
    assert group_advantages({name: rewards[name] for name in names}, GRPO) == group_advantages(rewards, GRPO)


@given(GROUPS, st.lists(st.integers(1, 5), min_size=100, max_size=100))
def test_rows_per_session_do_not_matter(rewards: dict[str, float], rows: list[int]) -> None:
    """However many Contexts a Session exports, the baseline sees it once."""
    exported = [(name, rewards[name]) for name, count in zip(rewards, rows, strict=False) for _ in range(count)]
    assert group_advantages(dict(exported), GRPO) == group_advantages(rewards, GRPO)


@given(st.integers(1, 40), REWARDS)
def test_equal_rewards_give_exactly_zero(count: int, reward: float) -> None:
    group = {f"s-{index}": reward for index in range(count)}
    assert set(group_advantages(group, GRPO).values()) == {0.0}
    assert not nonzero_std(list(group.values()))


@given(GROUPS.filter(lambda group: len(set(group.values())) > 1))
def test_scaled_advantages_have_unit_spread_at_most(rewards: dict[str, float]) -> None:
    assert statistics.stdev(group_advantages(rewards, GRPO).values()) <= 1.0 + 1e-9
    assert nonzero_std(list(rewards.values()))


def test_rewards_at_the_edge_of_float32_stay_finite() -> None:
    advantages = group_advantages({"a": 3.4e38, "b": -3.4e38, "c": 0.0}, GRPO)
    assert all(map(math.isfinite, advantages.values()))
