"""From Groups to weighted Contexts: a Session is one logical sample."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from relaxforge.core.errors import TrainError
from relaxforge.core.samples import ContextPath, SampleGroup, Segment, TrainBatch, flatten
from relaxforge.core.turns import VersionSpan, log_probs, token_ids
from relaxforge.train.config import TrainConfig
from relaxforge.train.contexts import FlatContext, optimiser_steps

PROMPT = Segment(token_ids([1, 2, 3]))
SHORT = Segment(token_ids([4]), log_probs([-0.5]), (VersionSpan(7, 0, 1),))
LONG = Segment(token_ids([5, 6, 7]), log_probs([-0.1, -0.2, -0.3]), (VersionSpan(7, 0, 1), VersionSpan(8, 1, 3)))


def batch(*contexts: ContextPath, segments: tuple[Segment, ...] = (PROMPT, SHORT, LONG)) -> TrainBatch:
    return TrainBatch(0, (SampleGroup("g", segments, contexts),), 1.0)


def context(session: str, *path: int, advantage: float = 1.0, name: str | None = None) -> ContextPath:
    return ContextPath(session, name, path, advantage, 0.0)


def weights(contexts: list[FlatContext]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for flat in contexts:
        found.setdefault(flat.session_id, []).extend(flat.weights.tolist())
    return found


def test_a_flat_context_is_the_row_that_flatten_makes(make) -> None:
    group = make.group()
    (flats,) = optimiser_steps(TrainBatch(0, (group,), 1.0), TrainConfig())
    for flat, path in zip(flats, group.contexts, strict=True):
        tokens, prompt_length, mask, logprobs = flatten(group, path)
        assert flat.tokens.tolist() == list(tokens)
        assert (flat.positions - prompt_length).tolist() == [i for i, bit in enumerate(mask) if bit]
        assert array("f", flat.logprobs) == array("f", [p for p, bit in zip(logprobs, mask, strict=True) if bit])


def test_every_session_weighs_the_same_whatever_its_length() -> None:
    (flats,) = optimiser_steps(batch(context("a", 0, 1), context("b", 0, 2)), TrainConfig())
    assert weights(flats) == {"a": [0.5], "b": pytest.approx([1 / 6] * 3)}


def test_every_token_weighs_the_same_with_per_token_loss() -> None:
    config = TrainConfig(calculate_per_token_loss=True)
    (flats,) = optimiser_steps(batch(context("a", 0, 1), context("b", 0, 2)), config)
    assert weights(flats) == {"a": [0.25], "b": [0.25] * 3}


def test_a_token_in_two_contexts_of_a_session_counts_once() -> None:
    (flats,) = optimiser_steps(batch(context("a", 0, 1), context("a", 0, 1, 2)), TrainConfig())
    assert weights(flats) == {"a": pytest.approx([1 / 8, 1 / 8, 1 / 4, 1 / 4, 1 / 4])}


def test_repeated_rows_of_a_session_change_nothing() -> None:
    once = [context("a", 0, 1), context("b", 0, 2), context("b", 0, 1, 2)]
    (expected,) = optimiser_steps(batch(*once), TrainConfig())
    (repeated,) = optimiser_steps(batch(*once, replace(once[1], name="again"), once[0]), TrainConfig())
    assert weights(repeated) == weights(expected)


def test_contexts_without_signal_are_left_out_but_their_sessions_still_count() -> None:
    contexts = (context("a", 0, 1), context("b", 0, 2, advantage=0.0))
    (flats,) = optimiser_steps(batch(*contexts), TrainConfig())
    assert weights(flats) == {"a": [0.5]}
    (with_kl,) = optimiser_steps(batch(*contexts), TrainConfig(use_kl_loss=True))
    assert set(weights(with_kl)) == {"a", "b"}


def test_sessions_that_sampled_nothing_do_not_count() -> None:
    (flats,) = optimiser_steps(batch(context("a", 0, 1), context("silent", 0)), TrainConfig())
    assert weights(flats) == {"a": [1.0]}


def test_global_batch_size_cuts_between_sessions() -> None:
    contexts = [context(f"s{i}", 0, 1) for i in range(5)] + [context("s0", 0, 2)]
    steps = optimiser_steps(batch(*contexts), TrainConfig(global_batch_size=2))
    assert [sorted({flat.session_id for flat in step}) for step in steps] == [["s0", "s1"], ["s2", "s3"], ["s4"]]
    assert [sum(map(sum, weights(step).values())) for step in steps] == pytest.approx([1.0, 1.0, 1.0])


def test_normalised_advantages_have_mean_0_and_deviation_1_over_sessions() -> None:
    contexts = [context("a", 0, 1, advantage=1.0), context("b", 0, 1, advantage=2.5), context("b", 0, 2, advantage=3.5)]
    (flats,) = optimiser_steps(batch(*contexts), TrainConfig(normalize_advantages=True))
    assert [flat.advantage for flat in flats] == pytest.approx([-1.0, 0.5, 1.5])


def test_weight_versions_follow_their_tokens() -> None:
    unmarked = Segment(token_ids([9]), log_probs([-1.0]))
    (flats,) = optimiser_steps(batch(context("a", 0, 2, 3), segments=(PROMPT, SHORT, LONG, unmarked)), TrainConfig())
    assert flats[0].versions.tolist() == [7, 8, 8, -1]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (batch(context("s1", 0, 1, advantage=float("nan"))), "session s1: advantage nan"),
        (batch(context("s1", 0, 3), segments=(PROMPT, SHORT, LONG, Segment(token_ids([1]), log_probs([float("nan")])))),
         "session s1: a rollout logprob"),
        (batch(context("s1", 0, 3), segments=(PROMPT, SHORT, LONG, Segment(token_ids([1, 2]), log_probs([0.0])))),
         "session s1: 1 logprobs for 2"),
        (batch(context("s1", 1)), "session s1: its Context begins with a sampled token"),
    ],
)  # fmt: skip
def test_unusable_numbers_are_refused_with_the_session(broken: TrainBatch, words: str) -> None:
    with pytest.raises(TrainError, match=words):
        optimiser_steps(broken, TrainConfig())


def test_an_empty_batch_has_no_optimiser_steps() -> None:
    assert optimiser_steps(TrainBatch(0, (), 1.0), TrainConfig(normalize_advantages=True)) == []
