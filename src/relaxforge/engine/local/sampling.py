"""From logits to tokens, the same for a seed whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch.nn.functional import pad

from relaxforge.core.turns import Sampling

BLOCK = 256


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (53 bits of BLAKE2b).

    ``position`` counts from the start of the context, so a request that continues a partial answer under the same seed
    draws what the first one would have drawn.
    """
    digest = blake2b(b"%d %d" % (seed, position), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / (1 << 53)


@torch.inference_mode()
def draw(
    logits: torch.Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]
) -> tuple[list[int], list[float]]:
    """One token per row of ``logits [rows, vocabulary]`` (float32, used up), and its logprob.

    The logprob is the log-softmax of ``logits / temperature`` before top-k and top-p; greedy rows (temperature 0) take
    the likeliest token and report it at temperature 1. Sampling inverts the cumulative distribution at ``uniforms``.
    """
    # In place from here on: on CPU a new tensor of this size costs more than the arithmetic.
    greedy = [row for row, sampling in enumerate(samplings) if sampling.temperature == 0]
    likeliest = logits[greedy].argmax(-1)
    temperatures = [sampling.temperature or 1.0 for sampling in samplings]
    if any(temperature != 1.0 for temperature in temperatures):
        logits.div_(torch.tensor(temperatures, device=logits.device)[:, None])
    weights = logits.sub_(logits.amax(-1, keepdim=True)).exp_()
    total = weights.sum(-1)
    for row, sampling in enumerate(samplings):
        if sampling.temperature:
            _filter(weights[row], sampling)
    chosen = _invert(weights, torch.tensor(uniforms, dtype=torch.float64, device=logits.device))
    chosen[greedy] = likeliest
    at = torch.arange(len(chosen), device=logits.device)
    return chosen.tolist(), (weights[at, chosen] / total).log().tolist()


def _invert(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """The first index of each row of ``weights`` at which the cumulative sum passes its share of the total.

    In two levels, blocks and the tokens of one block, since a cumulative sum over a whole vocabulary is slow.
    """
    rows, vocabulary = weights.shape
    blocks = pad(weights, (0, -vocabulary % BLOCK)).view(rows, -1, BLOCK)
    sums = blocks.sum(-1).double()
    target = uniforms[:, None] * sums.sum(-1, keepdim=True)
    block, before = _passes(sums, target)
    inner = blocks[torch.arange(rows, device=weights.device), block[:, 0]].double()
    within, _ = _passes(inner, target - before)
    return (block * BLOCK + within)[:, 0]


def _passes(parts: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the cumulative sum of each row passes ``target [rows, 1]``, and the sum before it.

    Never beyond the last part of the row that is above zero: rounding may leave the target a hair above the sum.
    """
    sums = parts.cumsum(-1)
    last = (parts > 0).cumsum(-1).argmax(-1, keepdim=True)
    index = torch.minimum(torch.searchsorted(sums, target, right=True), last)
    return index, sums.gather(1, index) - parts.gather(1, index)


def _filter(weights: torch.Tensor, sampling: Sampling) -> None:
    """Set to zero what top-k and then top-p leave out of one row; ties at the border of top-p keep the lower id."""
    if 0 < sampling.top_k < len(weights):
        kept = weights.topk(sampling.top_k).indices
        weights.copy_(torch.zeros_like(weights).index_copy_(0, kept, weights[kept]))
    if sampling.top_p < 1:
        ordered, order = weights.sort(descending=True, stable=True)
        before = ordered.cumsum(0) - ordered
        weights[order[before >= sampling.top_p * ordered.sum()]] = 0
