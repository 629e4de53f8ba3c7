"""What an evaluator writes: kept exactly where it is sound, named where it is not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.core.errors import EvaluatorError
from relaxforge.core.evidence import Verdict
from relaxforge.environments.verdict import read_verdict


def verdict(**given: object) -> Verdict:
    return read_verdict(json.dumps(given).encode())


def test_everything_is_kept_as_it_was_written():
    found = read_verdict(
        b'{"reward": 0.15, "stage_inventory": 1, "stage_checkout": 0.0, "orders": 3, "note": "left out", "ok": true,'
        b' "failure_category": "wrong_item"}'
    )
    assert found == Verdict(
        0.15, "scored", "0.15", {"stage_inventory": 1, "stage_checkout": 0.0}, {"orders": 3}, "wrong_item"
    )
    assert repr(found.stages) == "{'stage_inventory': 1, 'stage_checkout': 0.0}"


@pytest.mark.parametrize(("reward", "kept"), [(0, 0.0), (1, 1.0), (-0.0, 0.0), (1.0, 1.0), (5e-324, 5e-324)])
def test_rewards_within_the_bounds_are_scores(reward, kept):
    found = verdict(reward=reward)
    assert (str(found.reward), found.reward_status) == (str(kept), "scored")


@pytest.mark.parametrize("reward", [1.2, -0.1, 2, 1.0000000001, 10**200])
def test_a_reward_outside_is_no_score_and_is_kept(reward):
    found = verdict(reward=reward, stage_x=1)
    assert (found.reward, found.reward_status) == (None, "out_of_range")
    assert found.raw_reward == json.dumps(reward)[:100]
    assert found.stages == {"stage_x": 1}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (None, "wrote no file"),
        (b"", "wrote an empty file"),
        (b"  \n", "wrote an empty file"),
        (b"reward: 1", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"reward": 0.5', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON: nested deeper"),
        (b"0.5", "must write an object .* not 0.5"),
        (b"[1]", "not an array"),
        (b"{}", "wrote no 'reward'; it must be a number"),
        (b'{"reward": null}', "wrote no 'reward'"),
        (b'{"reward": NaN}', "NaN is not a JSON number"),
        (b'{"reward": Infinity}', "Infinity is not a JSON number"),
        (b'{"reward": 1e999}', "beyond the range"),
        (b'{"reward": true}', "wrote true as 'reward'; write 1"),
        (b'{"reward": "0.5"}', "wrote \"0.5\" as 'reward'; it must be a number"),
        (b'{"reward": {"a": 1}}', "wrote an object as 'reward'"),
        (b'{"reward": 1, "stage_x": "yes"}', "wrote \"yes\" as 'stage_x'; it must be a number"),
        (b'{"reward": 1, "stage_x": true}', "wrote true as 'stage_x'; write 1"),
        (b'{"reward": 1, "stage_x": null}', "wrote no 'stage_x'"),
        (b'{"reward": 1, "n": 1' + b"0" * 400 + b"}", "'n' of the evaluator is beyond the range"),
        (b'{"reward": 1, "failure_category": 7}', "wrote 7 as 'failure_category'"),
        (b'{"reward": 1, "failure_category": ""}', "text of 1 to 100 characters"),
        (b'{"reward": 1, "failure_category": "' + b"x" * 101 + b'"}', "text of 1 to 100 characters"),
        (b'{"reward": 1, "failure_category": "env_setup"}', "'env_setup' .* the name of a fault of ours"),
        (b'{"reward": 1, "' + b"k" * 101 + b'": 1}', "more than 100 characters"),
        (b'{"reward": 1, "x": "' + b"y" * (1 << 20) + b'"}', "more than 1 MiB"),
        (json.dumps({"reward": 1, **{str(n): n for n in range(500)}}).encode(), "501 keys"),
    ],
)
def test_each_fault_has_its_sentence(data, sentence):
    with pytest.raises(EvaluatorError, match=sentence):
        read_verdict(data)


def test_an_agents_category_may_be_used_by_an_evaluator():
    assert verdict(reward=0, failure_category="refusal").failure_category == "refusal"
    assert verdict(reward=0, failure_category=None).failure_category is None


KEYS = st.text() | st.sampled_from(["reward", "stage_a", "failure_category"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


@given(VALUES)
def test_whatever_is_written_becomes_a_verdict_or_a_sentence(value):
    try:
        found = read_verdict(json.dumps(value).encode())
    except EvaluatorError:
        return
    assert (found.reward is not None) == (found.reward_status == "scored")
    assert found.reward is None or 0 <= found.reward <= 1
    json.dumps([found.stages, found.metrics], allow_nan=False)
