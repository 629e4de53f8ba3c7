"""Sampling as mathematics: what is drawn, and the logprob that goes with it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxforge.core.turns import Sampling
from relaxforge.engine.local import sampling
from relaxforge.engine.local.sampling import BLOCK, uniform

shares = st.floats(0, 1, exclude_max=True)


def draw(logits, samplings, uniforms):
    """``sampling.draw`` on a copy: it uses its logits up."""
    return sampling.draw(logits.clone(), samplings, uniforms)


def logits_of(rows, vocabulary, seed=0):
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 3


@settings(deadline=None)
@given(st.integers(1, 3 * BLOCK), st.lists(shares, min_size=1, max_size=4), st.floats(0.2, 3))
def test_drawing_inverts_the_cumulative_distribution(vocabulary, uniforms, temperature):
    logits = logits_of(len(uniforms), vocabulary)
    tokens, logprobs = draw(logits, [Sampling(1, temperature=temperature)] * len(uniforms), uniforms)
    exact = torch.log_softmax(logits.double() / temperature, -1)
    for row, (token, share) in enumerate(zip(tokens, uniforms, strict=True)):
        edges = exact[row].exp().cumsum(0)
        below = 0.0 if token == 0 else float(edges[token - 1])
        assert below - 1e-5 <= share <= float(edges[token]) + 1e-5
        assert logprobs[row] == pytest.approx(float(exact[row, token]), abs=1e-5)


@given(st.integers(1, 2 * BLOCK), shares)
def test_temperature_zero_takes_the_likeliest(vocabulary, share):
    logits = logits_of(1, vocabulary)
    tokens, logprobs = draw(logits, [Sampling(1, temperature=0.0)], [share])
    assert tokens == [int(logits.argmax())]
    assert logprobs[0] == pytest.approx(float(torch.log_softmax(logits[0], -1).max()), abs=1e-5)


@given(st.integers(1, 40), shares)
def test_top_k_draws_from_the_k_likeliest_and_keeps_the_logprob_of_all(top_k, share):
    logits = logits_of(1, 100)
    tokens, logprobs = draw(logits, [Sampling(1, top_k=top_k)], [share])
    assert tokens[0] in logits[0].topk(top_k).indices
    assert logprobs[0] == pytest.approx(float(torch.log_softmax(logits[0], -1)[tokens[0]]), abs=1e-5)


@given(st.floats(0.01, 0.99), shares)
def test_top_p_draws_from_the_smallest_set_that_reaches_p(top_p, share):
    logits = logits_of(1, 100)
    tokens, _ = draw(logits, [Sampling(1, top_p=top_p)], [share])
    ordered, order = logits[0].double().softmax(-1).sort(descending=True)
    needed = int((ordered.cumsum(0) < top_p - 1e-6).sum()) + 1
    assert tokens[0] in order[: needed + 1]


def test_each_row_follows_its_own_sampling():
    logits = logits_of(1, 300).expand(4, -1)
    samplings = [Sampling(1, temperature=0.0), Sampling(1, top_k=1), Sampling(1, top_p=1e-6), Sampling(1)]
    tokens, _ = draw(logits, samplings, [0.999] * 4)
    likeliest = int(logits[0].argmax())
    assert tokens[:3] == [likeliest] * 3
    assert tokens[3] != likeliest


def test_a_row_draws_the_same_alone_and_among_others():
    logits = logits_of(8, 700)
    samplings = [Sampling(1, temperature=0.5 + row / 8) for row in range(8)]
    uniforms = [uniform(row, 3) for row in range(8)]
    together, logprobs = draw(logits, samplings, uniforms)
    alone = [draw(logits[row : row + 1], [samplings[row]], [uniforms[row]]) for row in range(8)]
    assert (together, logprobs) == ([one[0][0] for one in alone], [one[1][0] for one in alone])


def test_impossible_tokens_are_never_drawn():
    logits = torch.full((2, 600), -torch.inf)
    logits[:, 17] = 0.0
    tokens, logprobs = draw(logits, [Sampling(1)] * 2, [0.0, 1 - 2**-53])
    assert (tokens, logprobs) == ([17, 17], [0.0, 0.0])


def test_frequencies_follow_the_distribution():
    logits = torch.tensor([0.5, 0.3, 0.2]).log()[None]
    rows = 4000
    tokens, _ = draw(logits.expand(rows, -1), [Sampling(1)] * rows, [uniform(5, row) for row in range(rows)])
    for token, share in enumerate((0.5, 0.3, 0.2)):
        assert tokens.count(token) / rows == pytest.approx(share, abs=0.03)


@given(st.integers(-(2**63), 2**64), st.integers(0, 10**6))
def test_uniforms_are_repeatable_and_below_one(seed, position):
    assert 0 <= uniform(seed, position) < 1
    assert uniform(seed, position) == uniform(seed, position) != uniform(seed, position + 1)
