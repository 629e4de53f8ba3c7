"""The loss against slow float64 arithmetic, and against the published formulas of trl on the same numbers."""

from __future__ import annotations

import math
import random
import warnings
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from relaxforge.train.config import TrainConfig
from relaxforge.train.loss import TokenValues, kl_estimate, loss_parts, policy_loss

SESSIONS, LENGTH = 5, 7


@pytest.fixture
def numbers() -> dict[str, Tensor]:
    """One row per Session: logprobs of new, old and reference weights, a mask of sampled tokens, an advantage each."""
    generator = torch.Generator().manual_seed(5)

    def noise(scale: float) -> Tensor:
        return torch.randn(SESSIONS, LENGTH, generator=generator, dtype=torch.float64) * scale

    new = -noise(1.0).abs()
    mask = torch.rand(SESSIONS, LENGTH, generator=generator) < 0.7
    mask[:, 0] = True
    return {
        "new": new, "old": new + noise(0.4), "reference": new + noise(0.5), "entropy": noise(1.0).abs(), "mask": mask,
        "advantages": torch.tensor([1.2, -0.7, 0.4, -1.9, 0.9], dtype=torch.float64),
    }  # fmt: skip


def values(numbers: dict[str, Tensor], *, per_token: bool, reference: bool = False) -> TokenValues:
    mask = numbers["mask"]
    counts = mask.sum().double() if per_token else mask.sum(1, keepdim=True).double() * SESSIONS
    return TokenValues(
        logprobs=numbers["new"][mask],
        entropy=numbers["entropy"][mask],
        old_logprobs=numbers["old"][mask],
        advantages=numbers["advantages"][:, None].expand_as(mask)[mask],
        weights=(1.0 / counts).expand_as(mask)[mask],
        reference=numbers["reference"][mask] if reference else None,
    )


def slow_loss(numbers: dict[str, Tensor], config: TrainConfig) -> float:
    """Token by token with floats, the way the papers write it."""
    per_session: list[list[float]] = []
    for row in range(SESSIONS):
        advantage = float(numbers["advantages"][row])
        losses = []
        for column in range(LENGTH):
            if not numbers["mask"][row, column]:
                continue
            new, old, reference = (float(numbers[name][row, column]) for name in ("new", "old", "reference"))
            ratio = math.exp(new - old)
            bounded = min(max(ratio, 1 - config.eps_clip), 1 + config.clip_high)
            objective = min(ratio * advantage, bounded * advantage)
            if config.eps_clip_c is not None and advantage < 0:
                objective = max(objective, config.eps_clip_c * advantage)
            loss = -objective - config.entropy_coef * float(numbers["entropy"][row, column])
            if config.use_kl_loss:
                loss += config.kl_loss_coef * slow_kl(new, reference, config.kl_loss_type)
            losses.append(loss)
        per_session.append(losses)
    if config.calculate_per_token_loss:
        return sum(map(sum, per_session)) / sum(map(len, per_session))
    return sum(sum(losses) / len(losses) for losses in per_session) / SESSIONS


def slow_kl(new: float, reference: float, kind: str) -> float:
    difference = new - reference
    if kind == "low_var_kl":
        difference = min(max(difference, -10.0), 10.0)
        return min(math.exp(-difference) - 1 + difference, 10.0)
    return {"k1": difference, "k2": difference**2 / 2, "k3": math.exp(-difference) - 1 + difference}[kind]


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("clip", [{}, {"eps_clip_high": 0.28}, {"eps_clip_c": 1.3}])
@pytest.mark.parametrize("kind", [None, "k1", "k2", "k3", "low_var_kl"])
def test_loss_equals_the_slow_reference(
    numbers: dict[str, Tensor], per_token: bool, clip: dict[str, float], kind: Any
) -> None:
    kl = {} if kind is None else {"use_kl_loss": True, "kl_loss_coef": 0.3, "kl_loss_type": kind}
    config = TrainConfig(calculate_per_token_loss=per_token, entropy_coef=0.05, **clip, **kl)
    parts = loss_parts(values(numbers, per_token=per_token, reference=kind is not None), config)
    assert parts.total.item() == pytest.approx(slow_loss(numbers, config), rel=1e-12)


@pytest.mark.parametrize("dual", [None, 1.3])
def test_clip_fraction_counts_tokens_whose_gradient_the_clip_stops(
    numbers: dict[str, Tensor], dual: float | None
) -> None:
    new = numbers["new"].clone().requires_grad_()
    advantages = numbers["advantages"][:, None].expand_as(new)
    loss, decided = policy_loss(new, numbers["old"], advantages, 0.2, 0.2, dual)
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert new.grad is not None
    assert torch.equal(new.grad == 0, decided)
    assert decided.any()
    assert not decided.all()


def test_an_absurd_ratio_has_a_finite_gradient() -> None:
    new = torch.tensor([-1.0, -1.0], requires_grad=True)
    loss, decided = policy_loss(new, torch.tensor([-3e38, -200.0]), torch.tensor([1.0, -1.0]), 0.2, 0.2)
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert decided.tolist() == [True, False]
    assert new.grad is not None
    assert new.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "low_var_kl"])
def test_kl_estimate_has_the_gradient_of_its_formula(kind: Any) -> None:
    reference = torch.linspace(-3, -0.1, 9, dtype=torch.float64)
    new = (reference + torch.linspace(-1, 1, 9, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: kl_estimate(x, reference, kind), (new,))


def test_low_variance_kl_stays_finite_where_k3_overflows() -> None:
    new, reference = torch.tensor([-200.0]), torch.tensor([-1.0])
    assert kl_estimate(new, reference, "k3").isinf().all()
    assert kl_estimate(new, reference, "low_var_kl").item() == 10.0


@pytest.mark.parametrize(("loss_type", "per_token"), [("grpo", False), ("dapo", True)])
@pytest.mark.parametrize(("beta", "high", "delta"), [(0.0, 0.2, None), (0.04, 0.28, None), (0.04, 0.2, 1.5)])
def test_loss_and_gradient_equal_those_of_trl(
    numbers: dict[str, Tensor], loss_type: str, per_token: bool, beta: float, high: float, delta: float | None
) -> None:
    theirs_new = numbers["new"].clone().requires_grad_()
    theirs = trl_loss(numbers, theirs_new, loss_type, beta, high, delta)
    theirs.backward()  # type: ignore[no-untyped-call]

    ours_new = numbers["new"].clone().requires_grad_()
    config = TrainConfig(
        eps_clip_high=high, eps_clip_c=delta, use_kl_loss=beta > 0, kl_loss_coef=beta, kl_loss_type="k3",
        calculate_per_token_loss=per_token,
    )  # fmt: skip
    ours = loss_parts(values({**numbers, "new": ours_new}, per_token=per_token, reference=beta > 0), config).total
    ours.backward()  # type: ignore[no-untyped-call]

    assert ours.item() == pytest.approx(theirs.item(), rel=1e-9)
    torch.testing.assert_close(ours_new.grad, theirs_new.grad, rtol=1e-9, atol=0)


def trl_loss(
    numbers: dict[str, Tensor], new: Tensor, loss_type: str, beta: float, high: float, delta: float | None
) -> Tensor:
    """trl's own code on our numbers: only the model call is replaced by the logprobs it would return."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl.trainer.grpo_trainer import GRPOTrainer

    trainer = SimpleNamespace(
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None, use_vllm=False,
        importance_sampling_level="token", beta=beta, loss_type=loss_type, epsilon_low=0.2, epsilon_high=high,
        args=SimpleNamespace(delta=delta, use_bias_correction_kl=False, steps_per_generation=1),
        current_gradient_accumulation_steps=1, model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        _entropy_bonus_enabled=False, _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (new, numbers["entropy"], None),
    )  # fmt: skip
    mask = numbers["mask"].double()
    inputs = {
        "prompt_ids": torch.zeros(SESSIONS, 2, dtype=torch.long), "prompt_mask": torch.ones(SESSIONS, 2),
        "completion_ids": torch.zeros(SESSIONS, LENGTH, dtype=torch.long), "completion_mask": mask,
        "advantages": numbers["advantages"], "old_per_token_logps": numbers["old"],
        "ref_per_token_logps": numbers["reference"], "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    assert isinstance(loss, Tensor)
    return loss


def test_order_of_tokens_does_not_matter(numbers: dict[str, Tensor]) -> None:
    ordered = values(numbers, per_token=False, reference=True)
    shuffled = list(range(len(ordered.logprobs)))
    random.Random(1).shuffle(shuffled)
    config = TrainConfig(use_kl_loss=True, kl_loss_coef=0.1)
    again = TokenValues(*(tensor[shuffled] if tensor is not None else None for tensor in ordered))  # type: ignore[arg-type]
    assert loss_parts(ordered, config).total.item() == pytest.approx(loss_parts(again, config).total.item(), rel=1e-12)
