"""Contexts as micro-batches in which every shared prefix is computed once.

Sorted lexicographically, each Context shares its longest prefix with its neighbour, so neighbours form a tree whose
nodes are tokens: a Context adds only what its predecessor does not have. A tree becomes one row of a micro-batch.
Positions follow the path, and a token attends to its ancestors only, so every logit equals that of the separate row.
Equal answers to equal prompts are computed once, too.

Which neighbours share a row is the cheapest cut into trees: joining saves the shared prefix and costs attention over
tokens that do not see each other. The same search then packs rows of similar length into micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from relaxforge.train.contexts import FlatContext

Scalar = TypeVar("Scalar", bound=np.generic)

MICRO_BATCH_TOKENS = 64
"""What a micro-batch costs beyond its tokens (reading weights, adding up gradients), in tokens' worth of time."""

PAIRS_PER_TOKEN = 2.0
"""Attention pairs that cost as much as the rest of the model costs for one token, per unit of hidden size. Counting
operations gives 6; attention reaches about a third of the speed of large matrix products."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the layout has to know: the model's hidden size, whether its attention allows trees, the token budget.

    ``max_tokens`` bounds a micro-batch, padding included; ``None`` puts everything into one.
    """

    hidden_size: int
    trees: bool
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """``tokens``, ``positions`` (rows, width); ``visible`` (rows, width, width), query first, ``None`` when every row
    is one Context and plain causal attention is right; ``predicts`` (rows, width) marks positions whose logits are
    needed.

    The remaining arrays have one entry per sampled token of each Context: ``logit_rows`` (ascending) counts marked
    positions in row-major order, ``targets`` are the sampled tokens.
    """

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    visible: NDArray[np.bool_] | None
    predicts: NDArray[np.bool_]
    logit_rows: NDArray[np.int64]
    targets: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    versions: NDArray[np.int32]
    advantages: NDArray[np.float32]
    weights: NDArray[np.float32]
    computed_tokens: int
    """Tokens in the trees, padding not counted."""
    context_tokens: int
    """Tokens of the Contexts as separate rows."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """Neighbours laid out as ``size`` nodes; ``shared[i]``: prefix tokens that the one before has, too."""

    contexts: Sequence[FlatContext]
    shared: Sequence[int]
    size: int


def micro_batches(contexts: Sequence[FlatContext], shape: Shape) -> list[MicroBatch]:
    """All ``contexts`` as micro-batches of at most ``max_tokens`` (a Context that is longer gets one of its own)."""
    if not contexts:
        return []
    trees = sorted(_trees(contexts, shape), key=lambda tree: -tree.size)
    sizes = np.array([tree.size for tree in trees])

    def cost(end: int) -> NDArray[np.float64]:
        rows, width = end - np.arange(end), sizes[:end]
        total = rows * _row_cost(width, shape) + MICRO_BATCH_TOKENS
        return _within(total, rows * width, shape)

    return [_micro_batch(trees[start:end]) for start, end in _cheapest_cuts(len(trees), cost)]


def _trees(contexts: Sequence[FlatContext], shape: Shape) -> list[_Tree]:
    ordered = sorted(contexts, key=lambda context: context.tokens.astype(">i4").tobytes())
    if not shape.trees:
        return [_Tree([context], [0], len(context.tokens)) for context in ordered]
    shared = [0, *(_shared_prefix(a.tokens, b.tokens) for a, b in pairwise(ordered))]
    new = np.array([len(context.tokens) for context in ordered]) - shared[: len(ordered)]
    upto = np.concatenate([[0], np.cumsum(new)])
    heads = np.array(shared)

    def sizes(start: int | slice, end: int) -> NDArray[np.int64]:
        # The first Context of a tree has to bring its whole prefix.
        return np.asarray(upto[end] - upto[start] + heads[start])

    def cost(end: int) -> NDArray[np.float64]:
        size = sizes(slice(0, end), end)
        return _within(_row_cost(size, shape), size, shape)

    return [
        _Tree(ordered[start:end], [0, *shared[start + 1 : end]], int(sizes(start, end)))
        for start, end in _cheapest_cuts(len(ordered), cost)
    ]


def _row_cost(size: NDArray[np.int64], shape: Shape) -> NDArray[np.float64]:
    return np.asarray(size + size.astype(np.float64) ** 2 / (PAIRS_PER_TOKEN * shape.hidden_size))


def _within(cost: NDArray[np.float64], size: NDArray[np.int64], shape: Shape) -> NDArray[np.float64]:
    """``cost`` with pieces above the budget forbidden, except the last, which is a single item."""
    if shape.max_tokens is None:
        return cost
    allowed = size <= shape.max_tokens
    allowed[-1] = True
    return np.where(allowed, cost, np.inf)


def _cheapest_cuts(count: int, cost: Callable[[int], NDArray[np.float64]]) -> list[tuple[int, int]]:
    """Cut ``range(count)`` into consecutive pieces of least total cost.

    ``cost(end)`` gives the cost of the piece [start, end) for every start below end.
    """
    best, first = np.zeros(count + 1), np.zeros(count + 1, np.int64)
    for end in range(1, count + 1):
        total = best[:end] + cost(end)
        first[end] = total.argmin()
        best[end] = total[first[end]]
    pieces = []
    while count:
        pieces.append((int(first[count]), count))
        count = pieces[-1][0]
    return pieces[::-1]


def _shared_prefix(one: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length


def _micro_batch(trees: Sequence[_Tree]) -> MicroBatch:
    count, width = len(trees), max(tree.size for tree in trees)
    tokens = np.zeros((count, width), np.int64)
    positions = np.tile(np.arange(width), (count, 1))
    branching = any(len(tree.contexts) > 1 for tree in trees)
    visible = np.tile(np.eye(width, dtype=np.bool_), (count, 1, 1)) if branching else None
    predicts = np.zeros((count, width), np.bool_)
    sources: list[NDArray[np.int64]] = []
    for row, tree in enumerate(trees):
        for context, path, shared in _paths(tree):
            own = path[shared:]
            tokens[row, own] = context.tokens[shared:]
            positions[row, own] = np.arange(shared, len(path))
            if visible is not None:
                visible[row][np.ix_(own, path)] = np.tri(len(path), dtype=np.bool_)[shared:]
            source = path[context.positions - 1]
            predicts[row, source] = True
            sources.append(row * width + source)
    contexts = [context for tree in trees for context in tree.contexts]
    flat_sources = np.concatenate(sources)
    order = np.argsort(flat_sources, kind="stable")

    def gathered(parts: Sequence[NDArray[Scalar]]) -> NDArray[Scalar]:
        joined: NDArray[Scalar] = np.concatenate(parts)[order]
        return joined

    return MicroBatch(
        tokens=tokens,
        positions=positions,
        visible=visible,
        predicts=predicts,
        logit_rows=(np.cumsum(predicts.ravel()) - 1)[flat_sources[order]],
        targets=gathered([context.tokens[context.positions].astype(np.int64) for context in contexts]),
        logprobs=gathered([context.logprobs for context in contexts]),
        versions=gathered([context.versions for context in contexts]),
        advantages=gathered([np.full(len(context.positions), context.advantage, np.float32) for context in contexts]),
        weights=gathered([context.weights for context in contexts]),
        computed_tokens=sum(tree.size for tree in trees),
        context_tokens=sum(len(context.tokens) for context in contexts),
    )


def _paths(tree: _Tree) -> list[tuple[FlatContext, NDArray[np.int64], int]]:
    """Each Context with the tree nodes of its tokens and the number of those that the Context before brought along."""
    placed: list[tuple[FlatContext, NDArray[np.int64], int]] = []
    path, size = np.zeros(0, np.int64), 0
    for context, shared in zip(tree.contexts, tree.shared, strict=True):
        added = len(context.tokens) - shared
        path = np.concatenate([path[:shared], np.arange(size, size + added)])
        size += added
        placed.append((context, path, shared))
    return placed
