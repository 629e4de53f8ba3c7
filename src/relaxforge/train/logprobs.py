"""Log-probabilities of chosen tokens and entropies, straight from logits, in bounded memory.

A plain ``log_softmax`` on float32 logits keeps several copies of a (positions x vocabulary) matrix for the backward
pass. Here the logits stay in the model's number format, float32 exists only for a chunk of rows that fits a CPU cache,
and the backward pass computes the softmax again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 21


def token_logprobs(logits: Tensor, rows: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-softmax of ``logits / temperature`` at (rows[i], targets[i]), and the entropy of each row of ``logits``.

    ``logits`` is (positions, vocabulary); ``rows`` ascends and may repeat (several continuations of one prefix).
    Returns (one value per pair, one value per position) in float32, or float64 for float64 logits.
    """
    logprobs, entropy = _TokenLogprobs.apply(logits, rows, targets, temperature)  # type: ignore[no-untyped-call]
    return logprobs, entropy


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(logits.dtype, torch.float32)
        chosen = torch.empty(len(rows), dtype=wide, device=logits.device)
        normaliser = torch.empty(len(logits), dtype=wide, device=logits.device)
        entropy = torch.empty_like(normaliser)
        for chunk, pairs in _chunks(logits, rows):
            scaled = _scaled(logits[chunk], wide, temperature)
            top = scaled.amax(-1)
            logs = scaled.sub_(top[:, None])
            weights = logs.exp()
            total = weights.sum(-1)
            normaliser[chunk] = top + total.log()
            entropy[chunk] = total.log() - torch.linalg.vecdot(weights, logs) / total
            local = rows[pairs] - chunk.start
            chosen[pairs] = logs[local, targets[pairs]] - total.log()[local]
        ctx.save_for_backward(logits, rows, targets, normaliser, entropy)
        ctx.temperature = temperature
        ctx.set_materialize_grads(False)
        return chosen, entropy

    @staticmethod
    def backward(
        ctx: Any, chosen_gradient: Tensor | None, entropy_gradient: Tensor | None
    ) -> tuple[Tensor | None, None, None, None]:
        """d logprob / d logit_j = [j = target] - p_j; d entropy / d logit_j = -p_j (log p_j + entropy)."""
        logits, rows, targets, normaliser, entropy = ctx.saved_tensors
        wide = normaliser.dtype
        per_pair = (
            torch.zeros(len(rows), dtype=wide, device=logits.device) if chosen_gradient is None else chosen_gradient
        )
        per_row = torch.zeros_like(normaliser).index_add_(0, rows, per_pair)
        gradient = torch.empty_like(logits)
        for chunk, pairs in _chunks(logits, rows):
            logs = _scaled(logits[chunk], wide, ctx.temperature).sub_(normaliser[chunk, None])
            probabilities = logs.exp()
            factor = -per_row[chunk, None]
            if entropy_gradient is not None:
                factor = factor - entropy_gradient[chunk, None] * logs.add_(entropy[chunk, None])
            slope = probabilities.mul_(factor)
            slope.index_put_((rows[pairs] - chunk.start, targets[pairs]), per_pair[pairs], accumulate=True)
            gradient[chunk] = slope if ctx.temperature == 1.0 else slope.div_(ctx.temperature)
        return gradient, None, None, None


def _scaled(logits: Tensor, dtype: torch.dtype, temperature: float) -> Tensor:
    """A copy to compute in place on."""
    scaled = logits.to(dtype, copy=True)
    return scaled if temperature == 1.0 else scaled.div_(temperature)


def _chunks(logits: Tensor, rows: Tensor) -> list[tuple[slice, slice]]:
    """Slices of positions, each with the slice of pairs that belong to it."""
    step = max(1, CHUNK_ELEMENTS // max(1, logits.shape[-1]))
    starts = list(range(0, len(logits), step))
    bounds = torch.searchsorted(rows, torch.tensor([*starts, len(logits)], device=rows.device)).tolist()
    return [
        (slice(start, min(start + step, len(logits))), slice(first, last))
        for start, first, last in zip(starts, bounds, bounds[1:], strict=False)
    ]
