"""From logits to tokens, the same for a seed whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import torch

from relaxforge.core.turns import Sampling

BLOCK = 256


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (53 bits of BLAKE2b).

    ``position`` counts from the start of the context, so a request that continues a partial answer under the same seed
    draws what the first one would have drawn.
    """
    digest = blake2b(b"%d %d" % (seed, position), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / (1 << 53)


def draw(
    logits: torch.Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]
) -> tuple[list[int], list[float]]:
    """One token per row of ``logits [rows, vocabulary]`` (float32), and its logprob.

    The logprob is the log-softmax of ``logits / temperature`` before top-k and top-p; greedy rows (temperature 0) take
    the likeliest token and report it at temperature 1. Sampling inverts the cumulative distribution at ``uniforms``.
    """
    rows, vocabulary = logits.shape
    greedy = [sampling.temperature == 0 for sampling in samplings]
    temperatures = [1.0 if cold else sampling.temperature for cold, sampling in zip(greedy, samplings, strict=True)]
    if any(temperature != 1.0 for temperature in temperatures):
        logits = logits / torch.tensor(temperatures, device=logits.device)[:, None]
    top, likeliest = logits.max(-1)
    # Padded to whole blocks, so that the distribution can be summed in two levels.
    padded = logits.new_zeros(rows, -(-vocabulary // BLOCK) * BLOCK)
    weights = padded[:, :vocabulary]
    torch.exp(logits - top[:, None], out=weights)
    norm = weights.sum(-1).log() + top
    for row, sampling in enumerate(samplings):
        if not greedy[row]:
            _filter(weights[row], sampling)
    chosen = _invert(padded.view(rows, -1, BLOCK), torch.tensor(uniforms, dtype=torch.float64, device=logits.device))
    # Rounding at the very end of the distribution may name a token of weight zero.
    at = torch.arange(rows, device=logits.device)
    usable = (padded[at, chosen] > 0) & ~torch.tensor(greedy, device=logits.device)
    chosen = torch.where(usable, chosen, likeliest)
    return chosen.tolist(), (logits[at, chosen] - norm).tolist()


def _invert(blocks: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Where the cumulative sum of each row of ``blocks [rows, blocks, BLOCK]`` passes its share of the total."""
    sums = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    target = uniforms[:, None] * sums[:, -1:]
    block = torch.searchsorted(sums, target, right=True).clamp(max=blocks.shape[1] - 1)
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp(min=0)), 0.0)
    rows = torch.arange(len(uniforms), device=blocks.device)
    inner = blocks[rows, block[:, 0]].double().cumsum(-1)
    within = torch.searchsorted(inner, target - before, right=True).clamp(max=BLOCK - 1)
    return (block * BLOCK + within)[:, 0]


def _filter(weights: torch.Tensor, sampling: Sampling) -> None:
    """Set to zero what top-k and then top-p leave out of one row; ties at the border of top-p keep the lower id."""
    if 0 < sampling.top_k < len(weights):
        kept = weights.topk(sampling.top_k).indices
        weights.copy_(torch.zeros_like(weights).index_copy_(0, kept, weights[kept]))
    if sampling.top_p < 1:
        ordered, order = weights.sort(descending=True, stable=True)
        before = ordered.cumsum(0) - ordered
        weights[order[before >= sampling.top_p * ordered.sum()]] = 0
