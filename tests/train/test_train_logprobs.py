"""Log-probabilities straight from logits: equal to the plain formula, with exact gradients, however it is chunked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from relaxforge.train import logprobs
from relaxforge.train.logprobs import token_logprobs

ROWS = torch.tensor([0, 0, 1, 3, 3, 3])
TARGETS = torch.tensor([4, 4, 0, 2, 9, 2])


def logits(dtype: torch.dtype) -> Tensor:
    return (torch.randn(5, 11, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 3).to(dtype)


@pytest.fixture(params=[1, 22, 1 << 20], ids=["row by row", "two rows", "at once"])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", request.param)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_equal_log_softmax(temperature: float) -> None:
    chosen, entropy = token_logprobs(logits(torch.float64), ROWS, TARGETS, temperature)
    plain = torch.log_softmax(logits(torch.float64) / temperature, -1)
    torch.testing.assert_close(chosen, plain[ROWS, TARGETS], rtol=1e-12, atol=0)
    torch.testing.assert_close(entropy, -(plain.exp() * plain).sum(-1), rtol=1e-12, atol=0)


@pytest.mark.usefixtures("chunk")
def test_gradients_of_logprob_and_entropy_are_exact() -> None:
    inputs = logits(torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: token_logprobs(x, ROWS, TARGETS, 0.8), (inputs,))


def test_logits_are_left_as_they_were() -> None:
    inputs = logits(torch.float32).requires_grad_()
    before = inputs.detach().clone()
    token_logprobs(inputs, ROWS, TARGETS, 1.0)[0].sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(inputs.detach(), before)


def test_narrow_logits_give_wide_values_and_narrow_gradients() -> None:
    inputs = logits(torch.bfloat16).requires_grad_()
    chosen, entropy = token_logprobs(inputs, ROWS, TARGETS, 1.0)
    (chosen.sum() + entropy.sum()).backward()  # type: ignore[no-untyped-call]
    assert chosen.dtype == entropy.dtype == torch.float32
    assert inputs.grad is not None
    assert inputs.grad.dtype == torch.bfloat16


def test_gradient_of_a_nearly_certain_token_survives_narrow_logits() -> None:
    inputs = torch.zeros(1, 4, dtype=torch.bfloat16)
    inputs[0, 0] = 10.0
    inputs.requires_grad_()
    token_logprobs(inputs, torch.tensor([0]), torch.tensor([0]), 1.0)[0].sum().backward()  # type: ignore[no-untyped-call]
    assert inputs.grad is not None
    expected = 1 - torch.softmax(inputs.detach().double(), -1)[0, 0].item()
    assert inputs.grad[0, 0].item() == pytest.approx(expected, rel=0.01)
