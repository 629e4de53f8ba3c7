"""Continuous batching: requests join and leave between steps, each at its own position."""

from __future__ import annotations

import math
import secrets
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from relaxforge.core.turns import FinishReason, Sampling
from relaxforge.engine.local.attention import Layout, Piece
from relaxforge.engine.local.model import LocalModel
from relaxforge.engine.local.sampling import draw, uniform
from relaxforge.engine.local.slots import SlotTable
from relaxforge.engine.stops import StopWatcher


@dataclass(slots=True)
class Running:
    """One request: ``ids`` are its prompt and what was sampled, the first ``computed`` of them are in its slot."""

    number: int
    ids: array[int]
    end: int
    sampling: Sampling
    stop_ids: frozenset[int]
    seed: int
    watcher: StopWatcher | None = None
    slot: int | None = None
    computed: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Sampled:
    """One new token of one request; ``finish`` is set with its last, ``error`` when there is no token to be had."""

    running: Running
    token: int
    logprob: float
    finish: FinishReason | None = None
    stop_match: str | None = None
    error: str | None = None


class Batcher:
    """Requests over a cache of ``slots`` times ``slot_tokens``, at most ``max_batch_tokens`` tokens per step.

    Decoding requests go first, then prompts in arrival order, cut into pieces where the budget ends. ``decode`` gives
    the text of ids, for stop strings.
    """

    def __init__(
        self, model: LocalModel, *, slots: int, slot_tokens: int, max_batch_tokens: int,
        decode: Callable[[Sequence[int]], str],
    ) -> None:  # fmt: skip
        self._model = model
        self._new_cache = partial(model.new_cache, slots, slot_tokens)
        self._cache = self._new_cache()
        self._table = SlotTable(slots)
        # A step has room for one token of every slot, or decoding itself would stall.
        self._budget = max(max_batch_tokens, slots)
        self._decode = decode
        self._waiting: dict[int, Running] = {}
        self._running: dict[int, Running] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def cache_tokens(self) -> int:
        return self._table.tokens

    def add(self, number: int, prompt: array[int], budget: int, sampling: Sampling, stop_ids: frozenset[int]) -> None:
        """Take a request of which prompt and ``budget`` new tokens fit into a slot."""
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        watcher = StopWatcher(self._decode, sampling.stop) if sampling.stop else None
        self._waiting[number] = Running(
            number, prompt, len(prompt) + budget, sampling, stop_ids | set(sampling.stop_token_ids), seed, watcher
        )

    def abort(self, number: int) -> Running | None:
        """Drop a request; ``None`` when it is not here (any more)."""
        running = self._waiting.pop(number, None) or self._running.get(number)
        if running is not None and running.slot is not None:
            self._leave(running)
        return running

    def forget(self) -> None:
        """Use nothing again that was computed so far.

        Requests in flight keep what was sampled and compute their whole context anew before their next token.
        """
        self._table.forget()
        for running in self._running.values():
            running.computed = 0

    def load(self, folder: str) -> None:
        """Take new weights between two steps. Errors: ``EngineError``, the old weights stay."""
        self._model.load(folder)
        self.forget()

    def step(self) -> list[Sampled]:
        """Admit, compute one batch, sample. Empty when only parts of prompts were computed."""
        self._admit()
        work = self._plan()
        ids = [token for running, piece in work for token in running.ids[piece.start : piece.end]]
        logits = self._model.forward(ids, Layout(self._cache, tuple(piece for _, piece in work)))
        for running, piece in work:
            running.computed = piece.end
            self._table.computed(piece.slot, piece.end)
        ready = [row for row, (running, piece) in enumerate(work) if piece.end == len(running.ids)]
        if not ready:
            return []
        sampling = [work[row][0] for row in ready]
        tokens, logprobs = draw(
            logits if len(ready) == len(work) else logits[ready],
            [running.sampling for running in sampling],
            [uniform(running.seed, len(running.ids)) for running in sampling],
        )
        return [self._take(*found) for found in zip(sampling, tokens, logprobs, strict=True)]

    def _admit(self) -> None:
        for running in tuple(self._waiting.values()):
            if not self._table.has_free:
                return
            placement = self._table.place(running.ids)
            if placement is None:
                continue
            if placement.copy_from is not None:
                self._cache.copy(placement.copy_from, placement.slot, placement.reused)
            running.slot, running.computed, running.cached = placement.slot, placement.reused, placement.reused
            self._running[running.number] = self._waiting.pop(running.number)

    def _plan(self) -> list[tuple[Running, Piece]]:
        room, work = self._budget, []
        for running in sorted(self._running.values(), key=lambda running: len(running.ids) - running.computed > 1):
            count = min(len(running.ids) - running.computed, room)
            if count and running.slot is not None:
                work.append((running, Piece(running.slot, running.computed, count)))
                room -= count
        return work

    def _take(self, running: Running, token: int, logprob: float) -> Sampled:
        if math.isnan(logprob):
            self._leave(running)
            # Even masked, what is not a number would spread from the cache to other requests.
            self._cache = self._new_cache()
            self.forget()
            return Sampled(running, token, logprob, error="the model's logits are not finite")
        running.ids.append(token)
        match = running.watcher.feed(token) if running.watcher else None
        finish = None
        if match is not None or token in running.stop_ids:
            finish = FinishReason.STOP
        elif len(running.ids) >= running.end:
            finish = FinishReason.LENGTH
        if finish is not None:
            self._leave(running)
        return Sampled(running, token, logprob, finish, match)

    def _leave(self, running: Running) -> None:
        if running.slot is not None:
            self._table.release(running.slot)
        del self._running[running.number]
