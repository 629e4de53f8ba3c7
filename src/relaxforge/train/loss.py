"""The policy loss and its companions, as functions of one value per sampled token.

All tensors are 1-D with one entry per sampled token, in float32 or wider. Weights carry every reduction (per Session or
per token), so that each sum over micro-batches is the value for the whole batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relaxforge.train.config import KlLossType, TrainConfig

LOW_VAR_KL_LIMIT = 10.0
LOG_RATIO_LIMIT = 20.0


class TokenValues(NamedTuple):
    """What the current weights say about the sampled tokens, and what they are compared with.

    ``reference`` is ``None`` without a KL loss. ``weights`` are the shares in the loss of the batch.
    """

    logprobs: Tensor
    entropy: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    reference: Tensor | None = None


class LossParts(NamedTuple):
    """Weighted sums: ``total`` is what is minimised, the rest are its parts and what to report. ``weight`` is the sum
    of the weights, the denominator for means."""

    total: Tensor
    policy: Tensor
    kl: Tensor
    entropy: Tensor
    clipped: Tensor
    old_minus_new: Tensor
    weight: Tensor


def policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, low: float, high: float, dual: float | None = None
) -> tuple[Tensor, Tensor]:
    """Clipped surrogate loss per token, and whether the clip decides it (bool per token).

    With ratio r = exp(new - old) and advantage A: max(-r A, -clip(r, 1 - low, 1 + high) A) (PPO, arXiv 1707.06347;
    two ranges: DAPO, arXiv 2503.14476). ``dual`` caps the loss of tokens with A < 0 at -dual A (arXiv 1912.09729).
    """
    # Beyond e**20 a ratio says nothing but that the two sides disagree, and an infinite one has no gradient to clip.
    ratio = torch.exp((logprobs - old_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
    plain = -ratio * advantages
    clipped = -ratio.clamp(1 - low, 1 + high) * advantages
    loss = torch.maximum(plain, clipped)
    decided = clipped > plain
    if dual is not None:
        cap = -dual * advantages
        decided = decided | ((advantages < 0) & (loss > cap))
        loss = torch.where(advantages < 0, torch.minimum(loss, cap), loss)
    return loss, decided


def kl_estimate(logprobs: Tensor, reference: Tensor, kind: KlLossType) -> Tensor:
    """Estimate of KL(policy || reference) per token that the policy sampled, from d = log policy - log reference.

    k1 = d, k2 = d**2 / 2, k3 = exp(-d) - 1 + d (joschu.net/blog/kl-approx.html). ``low_var_kl`` is k3 with d clamped
    to +-10 before and the result after, so that one token cannot dominate a batch.
    """
    difference = logprobs - reference
    if kind == "k1":
        return difference
    if kind == "k2":
        return difference.square() / 2
    if kind == "k3":
        return torch.exp(-difference) - 1 + difference
    difference = difference.clamp(-LOW_VAR_KL_LIMIT, LOW_VAR_KL_LIMIT)
    return (torch.exp(-difference) - 1 + difference).clamp(max=LOW_VAR_KL_LIMIT)


def loss_parts(values: TokenValues, config: TrainConfig) -> LossParts:
    """total = policy + kl_loss_coef * kl - entropy_coef * entropy, each the weighted sum over tokens."""
    weights = values.weights
    per_token, decided = policy_loss(
        values.logprobs, values.old_logprobs, values.advantages, config.eps_clip, config.clip_high, config.eps_clip_c
    )
    policy = (per_token * weights).sum()
    entropy = (values.entropy * weights).sum()
    kl = torch.zeros_like(policy)
    if values.reference is not None:
        kl = (kl_estimate(values.logprobs, values.reference, config.kl_loss_type) * weights).sum()
    return LossParts(
        total=policy + config.kl_loss_coef * kl - config.entropy_coef * entropy,
        policy=policy.detach(),
        kl=kl.detach(),
        entropy=entropy.detach(),
        clipped=(decided * weights).sum(),
        old_minus_new=((values.old_logprobs - values.logprobs).detach() * weights).sum(),
        weight=weights.sum(),
    )
