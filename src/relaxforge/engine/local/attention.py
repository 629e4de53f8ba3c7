"""Attention of packed tokens over a cache of slots: no padding between requests, no mask across them.

One step of the engine runs the model over the tokens of many requests laid end to end in a batch of one. Each request
owns a slot of the cache; ``attend`` writes the new keys and values there and lets every token look at its own slot
only. Requests with one new token (decoding) share one call per power of two of their length; each request with more
(prefill) gets a call of its own. transformers calls ``attend`` as the attention implementation ``IMPLEMENTATION``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from relaxforge.core.errors import EngineError

IMPLEMENTATION = "relaxforge_slots"


@dataclass(frozen=True, slots=True)
class Piece:
    """``count`` consecutive tokens of the request in ``slot``, the first of them at position ``start``."""

    slot: int
    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count


class SlotCache:
    """Keys and values: ``[2, layers, slots, slot_tokens, heads, head_dim]``, zero at first.

    Masked positions have weight 0, which leaves no trace only of finite numbers. On CPU, numpy's zeros are pages that
    cost nothing until they are written; torch would write them all.
    """

    def __init__(
        self, *, layers: int, slots: int, slot_tokens: int, heads: int, head_dim: int,
        dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        shape = (2, layers, slots, slot_tokens, heads, head_dim)
        if device.type == "cpu":
            self.data = torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(shape)
        else:
            self.data = torch.zeros(shape, dtype=dtype, device=device)

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer, each ``[slots, slot_tokens, heads, head_dim]``."""
        return self.data[0, index], self.data[1, index]

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Give ``target`` the first ``tokens`` positions of ``source``, in all layers."""
        self.data[:, :, target, :tokens] = self.data[:, :, source, :tokens]


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Decoding requests of similar length: where their token, slot and context are."""

    tokens: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor
    longest: int


@dataclass(slots=True)
class Layout:
    """The layout of one step, made once and used by every layer.

    ``slots`` and ``positions`` are ``[tokens]``; ``last`` indexes the last token of each piece, in the order given.
    """

    cache: SlotCache
    pieces: tuple[Piece, ...]
    slots: torch.Tensor = field(init=False)
    positions: torch.Tensor = field(init=False)
    last: torch.Tensor = field(init=False)
    decode: tuple[_Bucket, ...] = field(init=False)
    prefill: tuple[tuple[int, Piece], ...] = field(init=False)
    layers_seen: int = 0
    masks: dict[tuple[int, int | None], torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        offsets, total = [], 0
        for piece in self.pieces:
            offsets.append(total)
            total += piece.count
        self.slots = self._tensor([piece.slot for piece in self.pieces for _ in range(piece.count)])
        self.positions = self._tensor([at for piece in self.pieces for at in range(piece.start, piece.end)])
        self.last = self._tensor([offset + piece.count - 1 for offset, piece in zip(offsets, self.pieces, strict=True)])
        placed = list(zip(offsets, self.pieces, strict=True))
        self.prefill = tuple((offset, piece) for offset, piece in placed if piece.count > 1)
        by_size: dict[int, list[tuple[int, Piece]]] = {}
        for offset, piece in placed:
            if piece.count == 1:
                by_size.setdefault(piece.start.bit_length(), []).append((offset, piece))
        self.decode = tuple(self._bucket(members) for members in by_size.values())

    def _bucket(self, members: list[tuple[int, Piece]]) -> _Bucket:
        return _Bucket(
            tokens=self._tensor([offset for offset, _ in members]),
            slots=self._tensor([piece.slot for _, piece in members]),
            lengths=self._tensor([piece.end for _, piece in members]),
            longest=max(piece.end for _, piece in members),
        )

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.cache.data.device)


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None,
    *,
    slot_layout: Layout,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' interface: ``query [1, H, T, D]``, ``key`` and ``value [1, Hkv, T, D]`` -> ``[1, T, H, D]``.

    Errors: ``EngineError`` for attention that is more than softmax over a causal or sliding window.
    """
    if softcap is not None or s_aux is not None:
        raise EngineError(f"--engine local cannot run {type(module).__name__}: it caps logits or has attention sinks")
    keys, values = slot_layout.cache.layer(module.layer_idx)
    keys[slot_layout.slots, slot_layout.positions] = key[0].transpose(0, 1)
    values[slot_layout.slots, slot_layout.positions] = value[0].transpose(0, 1)
    slot_layout.layers_seen += 1
    heads, kv_heads, size = query.shape[1], key.shape[1], query.shape[3]
    out = query.new_empty((query.shape[2], heads, size))
    for number, bucket in enumerate(slot_layout.decode):
        mask = _decode_mask(slot_layout, number, bucket, sliding_window)
        # The query heads that share a key head become its queries: no key is repeated, no causal order is needed.
        rows = query[0, :, bucket.tokens].transpose(0, 1).reshape(-1, kv_heads, heads // kv_heads, size)
        near_keys = keys[:, : bucket.longest].index_select(0, bucket.slots).transpose(1, 2)
        near_values = values[:, : bucket.longest].index_select(0, bucket.slots).transpose(1, 2)
        seen = scaled_dot_product_attention(rows, near_keys, near_values, attn_mask=mask, scale=scaling)
        out[bucket.tokens] = seen.flatten(1, 2)
    for offset, piece in slot_layout.prefill:
        causal = _prefill_mask(slot_layout, piece, sliding_window)
        seen = scaled_dot_product_attention(
            query[:, :, offset : offset + piece.count],
            keys[piece.slot : piece.slot + 1, : piece.end].transpose(1, 2),
            values[piece.slot : piece.slot + 1, : piece.end].transpose(1, 2),
            attn_mask=causal, is_causal=causal is None, scale=scaling, enable_gqa=heads != kv_heads,
        )  # fmt: skip
        out[offset : offset + piece.count] = seen[0].transpose(0, 1)
    return out.unsqueeze(0), None


def _decode_mask(layout: Layout, number: int, bucket: _Bucket, window: int | None) -> torch.Tensor:
    """``[B, 1, 1, longest]``, true where a row may look: below its length and inside the sliding window."""
    name = (-1 - number, window)
    if name not in layout.masks:
        at = torch.arange(bucket.longest, device=bucket.lengths.device)
        seen = at < bucket.lengths[:, None]
        if window is not None:
            seen &= at >= bucket.lengths[:, None] - window
        layout.masks[name] = seen[:, None, None, :]
    return layout.masks[name]


def _prefill_mask(layout: Layout, piece: Piece, window: int | None) -> torch.Tensor | None:
    """``[count, end]`` causal mask aligned to the last position; ``None`` where plain causal attention is the same."""
    if piece.start == 0 and (window is None or window >= piece.end):
        return None
    name = (piece.slot, window)
    if name not in layout.masks:
        to = torch.arange(piece.start, piece.end, device=layout.slots.device)[:, None]
        at = torch.arange(piece.end, device=layout.slots.device)
        seen = at <= to
        if window is not None:
            seen &= at > to - window
        layout.masks[name] = seen
    return layout.masks[name]


AttentionInterface.register(IMPLEMENTATION, attend)
