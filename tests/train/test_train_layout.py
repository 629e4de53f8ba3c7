"""Shared prefixes are computed once and nothing else changes: values and gradients are those of separate rows."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from relaxforge.core.errors import TrainError
from relaxforge.train.contexts import FlatContext
from relaxforge.train.layout import Shape, _cheapest_cuts, micro_batches
from relaxforge.train.policy import Policy


@pytest.fixture(scope="module")
def exact_model(tiny_model: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float64).eval()


def flat(tokens: list[int], positions: list[int], advantage: float = 1.0, name: str = "s") -> FlatContext:
    count = len(positions)
    return FlatContext(
        session_id=name, advantage=advantage, tokens=np.array(tokens, np.int32),
        positions=np.array(positions, np.int64), logprobs=np.linspace(-2, -1, count, dtype=np.float32),
        versions=np.zeros(count, np.int32), weights=np.linspace(0.5, 1.5, count, dtype=np.float32),
    )  # fmt: skip


@st.composite
def flats(draw: st.DrawFn) -> list[FlatContext]:
    """Contexts over three different ids, so that prefixes are shared often and in every way; some are equal."""
    rows = draw(st.lists(st.lists(st.integers(1, 3), min_size=2, max_size=12), min_size=1, max_size=7))
    contexts = []
    for row in rows:
        positions = draw(st.lists(st.integers(1, len(row) - 1), unique=True, max_size=4).map(sorted))
        contexts.append(flat(row, positions, draw(st.sampled_from([-1.0, 0.5, 2.0]))))
    return contexts


def gradient(model: PreTrainedModel, loss: Tensor) -> Tensor:
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in model.parameters()])


def separate_rows(model: PreTrainedModel, contexts: list[FlatContext], temperature: float) -> Tensor:
    """Every Context in a forward pass of its own, plain causal attention, plain log-softmax."""
    total = torch.zeros((), dtype=torch.float64)
    for context in contexts:
        ids = torch.from_numpy(context.tokens.astype(np.int64))
        logs = torch.log_softmax(model(ids[None]).logits[0] / temperature, -1)
        places = torch.from_numpy(context.positions)
        chosen = logs[places - 1, ids[places]]
        total = total + context.advantage * (torch.from_numpy(context.weights) * chosen).sum()
    return total


def shared_rows(model: PreTrainedModel, contexts: list[FlatContext], shape: Shape, temperature: float) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for batch in micro_batches(contexts, shape):
        logprobs, _ = Policy(model)(batch, temperature)
        total = total + (torch.from_numpy(batch.advantages * batch.weights) * logprobs).sum()
    return total


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contexts=flats(), max_tokens=st.sampled_from([None, 4, 16, 64]), trees=st.booleans(), wide=st.booleans())
def test_values_and_gradients_equal_those_of_separate_rows(
    exact_model: PreTrainedModel, contexts: list[FlatContext], max_tokens: int | None, trees: bool, wide: bool
) -> None:
    # A wide model makes joining cheap, a narrow one makes it dear: both cuts have to be right.
    shape = Shape(4096 if wide else 2, trees, max_tokens)
    expected = separate_rows(exact_model, contexts, 0.9)
    actual = shared_rows(exact_model, contexts, shape, 0.9)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
    if expected.requires_grad and actual.requires_grad:
        ours, theirs = gradient(exact_model, actual), gradient(exact_model, expected)
        # Norms and rotations compute in float32, and what cancels between Contexts leaves their rounding: the whole
        # gradient is the scale.
        assert (ours - theirs).norm() <= 2e-6 * (1 + theirs.norm())


@given(contexts=flats(), max_tokens=st.integers(1, 40), trees=st.booleans())
def test_micro_batches_keep_the_budget_and_every_sampled_token(
    contexts: list[FlatContext], max_tokens: int, trees: bool
) -> None:
    batches = micro_batches(contexts, Shape(64, trees, max_tokens))
    for batch in batches:
        assert batch.tokens.size <= max_tokens or len(batch.tokens) == 1
        assert (np.diff(batch.logit_rows) >= 0).all()
        assert batch.predicts.sum() == len(np.unique(batch.logit_rows))
    expected = sorted(int(token) for context in contexts for token in context.tokens[context.positions])
    assert sorted(int(token) for batch in batches for token in batch.targets) == expected


def test_a_context_longer_than_the_budget_gets_a_micro_batch_of_its_own() -> None:
    contexts = [flat([1] * 50, [49]), flat([2, 3], [1]), flat([2, 4], [1])]
    widths = sorted(batch.tokens.shape[1] for batch in micro_batches(contexts, Shape(64, True, 8)))
    assert widths == [3, 50]


def test_a_group_becomes_one_row_in_which_the_prompt_stands_once() -> None:
    contexts = [flat([*range(1, 41), 50 + i, 50], [40, 41]) for i in range(8)]
    (batch,) = micro_batches(contexts, Shape(576, True, 2048))
    assert batch.tokens.shape == (1, 40 + 8 * 2)
    assert batch.computed_tokens == 56
    assert batch.context_tokens == 8 * 42


def test_equal_answers_are_computed_once() -> None:
    contexts = [flat([1, 2, 3, 4], [2, 3], advantage=a) for a in (1.0, -1.0, 0.5)]
    (batch,) = micro_batches(contexts, Shape(576, True, 2048))
    assert batch.computed_tokens == 4
    assert sorted(batch.advantages.tolist()) == [-1.0, -1.0, 0.5, 0.5, 1.0, 1.0]


def test_long_contexts_that_share_little_stay_apart_and_need_no_mask() -> None:
    rng = random.Random(0)
    contexts = [flat([1, *(rng.randrange(2, 60) for _ in range(800))], [5]) for _ in range(3)]
    (batch,) = micro_batches(contexts, Shape(32, True, None))
    assert batch.tokens.shape == (3, 801)
    assert batch.visible is None


def test_rows_of_similar_length_are_batched_together() -> None:
    lengths = [100, 101, 102, 10, 11, 12]
    contexts = [flat([2 + i, *([1] * length)], [1]) for i, length in enumerate(lengths)]
    batches = micro_batches(contexts, Shape(64, True, 400))
    assert sum(batch.computed_tokens for batch in batches) == sum(lengths) + len(lengths)
    assert [batch.tokens.shape[0] for batch in batches] == [3, 3]


def test_a_token_outside_the_vocabulary_is_refused(exact_model: PreTrainedModel) -> None:
    (batch,) = micro_batches([flat([1, 400, 2], [1])], Shape(32, True, None))
    with pytest.raises(TrainError, match="token id 400 is outside the model's vocabulary of 61"):
        Policy(exact_model)(batch, 1.0)


@given(count=st.integers(0, 7), seed=st.integers(0, 1000))
def test_cuts_are_the_cheapest_of_all(count: int, seed: int) -> None:
    price = np.random.default_rng(seed).random((8, 8))

    def cheapest(upto: int) -> float:
        return 0.0 if upto == 0 else min(cheapest(start) + price[start, upto] for start in range(upto))

    pieces = _cheapest_cuts(count, lambda end: price[:end, end])
    assert [index for start, end in pieces for index in range(start, end)] == list(range(count))
    assert sum(price[start, end] for start, end in pieces) == pytest.approx(cheapest(count))
