"""``python -m relaxforge.engine.local.process``: the engine's own process; it sleeps while it has nothing to sample."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import psutil
import torch
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from relaxforge.core.errors import EngineError
from relaxforge.core.turns import Capacity, FinishReason, WeightUpdate, log_probs, token_ids
from relaxforge.engine.local.batcher import Batcher, Sampled
from relaxforge.engine.local.model import LocalModel
from relaxforge.engine.local.wire import Ended, Ready, Start, Step, Submit
from relaxforge.ipc.child import ChildChannel
from relaxforge.ipc.codec import shape
from relaxforge.ipc.frames import Frame

BATCH_TOKENS = {"cpu": 1024, "cuda": 8192}
MEMORY_SHARE = 0.5
"""Part of the free memory that the cache may take when nobody says how large it is."""


class EngineProcess:
    """Answers frames between steps, in the order in which main sent them, and reports steps on the ``stream`` call."""

    def __init__(self, channel: ChildChannel, start: Start) -> None:
        model = LocalModel(start.folder, start.device, start.dtype)
        slots = _slots(start, model)
        self.ready = Ready(slots, start.max_context)
        self._channel = channel
        self._batcher = Batcher(
            model, slots=slots, slot_tokens=start.max_context, decode=_decoder(start.folder),
            max_batch_tokens=start.max_batch_tokens or BATCH_TOKENS[model.device.type],
        )  # fmt: skip
        self._stop_ids = frozenset(start.stop_ids)
        self._version = start.weight_version
        self._paused = False
        self._stream: Frame | None = None
        self._calls: dict[str, Callable[[Any], Any]] = {
            "pause": self._pause, "resume": self._resume, "load": self._load, "capacity": self._capacity,
        }  # fmt: skip

    def serve(self) -> None:
        while True:
            busy = not self._paused and self._batcher.running + self._batcher.waiting > 0
            frame = self._channel.poll(0.0 if busy else None)
            if frame is not None:
                self._take(frame)
            elif busy:
                self._report(self._batcher.step())

    def _take(self, frame: Frame) -> None:
        if frame.method == "stream":
            self._stream = frame
        elif frame.method == "submit":
            asked = shape(frame.body, Submit)
            self._batcher.add(asked.number, asked.prompt_ids, asked.budget, asked.sampling, self._stop_ids)
        elif frame.method == "abort":
            if running := self._batcher.abort(frame.body):
                self._send([], (Ended(running.number, FinishReason.ABORT, running.cached),))
        else:
            try:
                self._channel.reply(frame, self._calls[frame.method](frame.body))
            except EngineError as error:
                self._channel.fail(frame, error)

    def _pause(self, _: None) -> None:
        self._paused = True

    def _resume(self, _: None) -> None:
        self._paused = False

    def _load(self, body: Any) -> None:
        update = shape(body, WeightUpdate)
        self._batcher.load(update.path)
        self._version = update.version

    def _capacity(self, _: None) -> Capacity:
        total = self.ready.slots * self.ready.slot_tokens
        return Capacity(self._batcher.running, self._batcher.waiting, self._batcher.cache_tokens, total)

    def _report(self, sampled: list[Sampled]) -> None:
        ended = tuple(
            Ended(one.running.number, one.finish or FinishReason.ABORT, one.running.cached, one.stop_match, one.error)
            for one in sampled
            if one.finish or one.error
        )
        if sampled:
            self._send([one for one in sampled if not one.error], ended)

    def _send(self, sampled: list[Sampled], ended: tuple[Ended, ...]) -> None:
        numbers = token_ids(one.running.number for one in sampled)
        ids, logprobs = token_ids(one.token for one in sampled), log_probs(one.logprob for one in sampled)
        if self._stream is not None:
            self._channel.event(self._stream, Step(self._version, numbers, ids, logprobs, ended))


def _slots(start: Start, model: LocalModel) -> int:
    """How many contexts the cache holds: one per concurrent request, as far as it may grow."""
    allowed = start.cache_tokens
    if allowed is None:
        cuda = model.device.type == "cuda"
        free = torch.cuda.mem_get_info()[0] if cuda else psutil.virtual_memory().available
        allowed = int(free * MEMORY_SHARE) // model.token_bytes
    slots = min(start.max_concurrent, allowed // start.max_context)
    if slots < 1:
        raise EngineError(
            f"the cache has room for {allowed} tokens, less than one context of {start.max_context}: lower "
            "--rollout-max-context-len, or raise --engine-cache-tokens"
        )
    return slots


def _decoder(folder: str) -> Callable[[Sequence[int]], str]:
    """Text of ids, special tokens spelled out. Loads the tokenizer when a stop string first needs it."""

    @cache
    def tokenizer() -> Any:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)

    return lambda ids: str(tokenizer().decode(ids, skip_special_tokens=False))


def main() -> None:
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    channel = ChildChannel()
    for frame in channel:
        try:
            process = EngineProcess(channel, shape(frame.body, Start))
        except Exception as error:  # noqa: BLE001 -- the process boundary: main must hear why, whatever a library raises
            channel.fail(frame, error)
        else:
            channel.reply(frame, process.ready)
            process.serve()


if __name__ == "__main__":
    main()
