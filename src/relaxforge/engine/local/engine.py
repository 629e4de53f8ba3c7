"""The local engine as main sees it: requests go to the engine process, tokens come back step by step."""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from relaxforge.core.errors import EngineError
from relaxforge.core.ports import ignore_chunk
from relaxforge.core.turns import (
    Capabilities,
    Capacity,
    GenerateRequest,
    Generation,
    TokenChunk,
    VersionSpan,
    WeightUpdate,
    log_probs,
    token_ids,
)
from relaxforge.engine.config import EngineConfig, Workload
from relaxforge.engine.folder import read_facts
from relaxforge.engine.limits import budget
from relaxforge.engine.local.wire import Ended, Start, Step, Submit
from relaxforge.ipc.codec import shape
from relaxforge.ipc.parent import Child, ChildDied, ChildFailed

# How long a thread spins before it sleeps, when it waits for the others at the end of an operation. On two cores, ms
# per step of SmolLM2-135M with 64 requests, alone / beside one busy process: never 164 / 204, 1000 rounds 114 / 257,
# GNU's own 300000 rounds 123 / 400 (and ten times that beside a few). Agents share these cores with the engine.
ENVIRONMENT = {"GOMP_SPINCOUNT": "1000", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}

GO_ON = "See there, mend that and start again; --resume latest goes on from the last checkpoint"


@dataclass(slots=True)
class _Answer:
    """One request in flight and what it has so far."""

    request_id: str
    emit: Callable[[TokenChunk], None]
    done: asyncio.Future[Generation]
    ids: array[int] = field(default_factory=token_ids)
    logprobs: array[float] = field(default_factory=log_probs)
    versions: list[VersionSpan] = field(default_factory=list)

    def add(self, token: int, logprob: float, version: int) -> None:
        start = at = len(self.ids)
        self.ids.append(token)
        self.logprobs.append(logprob)
        if self.versions and self.versions[-1].version == version:
            start = self.versions.pop().start
        self.versions.append(VersionSpan(version, start, at + 1))
        if self.emit is not ignore_chunk:
            self.emit(TokenChunk(self.request_id, self.ids[at:], self.logprobs[at:], version))

    def end(self, ended: Ended) -> None:
        if self.done.done():
            return
        if ended.error is not None:
            self.done.set_exception(EngineError(f"request {self.request_id}: {ended.error}"))
            return
        versions = tuple(self.versions)
        self.done.set_result(
            Generation(self.ids, self.logprobs, versions, ended.finish, ended.cached_tokens, ended.stop_match)
        )


class LocalEngine:
    """``core.ports.Engine`` over ``engine.local.process``. Errors of construction: ``ConfigError``.

    The context limit is the smaller of the workload's and the model's. ``load`` takes effect between two steps:
    requests in flight keep what they sampled and compute their whole context under the new weights before their next
    token. Temperature 0 is greedy and reports logprobs at temperature 1. When the process dies, every call fails with
    ``EngineError``.
    """

    def __init__(
        self, folder: str, config: EngineConfig, workload: Workload, *, end_of_turn_id: int,
        log_path: str | None = None, weight_version: int = 0,
    ) -> None:  # fmt: skip
        facts = read_facts(folder)
        limits = [limit for limit in (workload.max_context, facts.max_context) if limit is not None]
        context = min(limits, default=4096)
        self.capabilities = Capabilities(per_request_seed=True, cached_tokens=True, max_context=context)
        self._vocab_size = facts.vocab_size
        self._log_path = config.engine_log or log_path
        self._start = Start(
            folder=folder,
            device=config.engine_device,
            dtype=config.engine_dtype,
            max_concurrent=workload.max_concurrent,
            max_context=context,
            max_batch_tokens=config.engine_max_batch_tokens,
            cache_tokens=config.engine_cache_tokens,
            stop_ids=(end_of_turn_id, *facts.stop_ids),
            weight_version=weight_version,
        )
        self._child: Child | None = None
        self._stream: asyncio.Task[None] | None = None
        self._down = "it was not started"
        self._answers: dict[int, _Answer] = {}
        self._numbers: dict[str, int] = {}
        self._next = 0

    @property
    def pid(self) -> int | None:
        """The engine process, once started."""
        return self._child.pid if self._child else None

    async def start(self) -> None:
        environment = {**ENVIRONMENT, **os.environ}
        self._child = await Child.start(
            "engine", "relaxforge.engine.local.process", env=environment, log_path=self._log_path
        )
        self._down = ""
        try:
            await self._call("start", asdict(self._start))
        except EngineError:
            await self.close()
            raise
        self._stream = asyncio.create_task(self._listen(self._child), name="engine-stream")

    async def generate(self, request: GenerateRequest, emit: Callable[[TokenChunk], None] = ignore_chunk) -> Generation:
        limit = budget(request, request.prompt_ids, self._vocab_size, self.capabilities.max_context)
        if request.request_id in self._numbers:
            raise EngineError(f"request {request.request_id}: another request of this id is running")
        child = self._alive()
        self._next += 1
        number, answer = self._next, _Answer(request.request_id, emit, asyncio.get_running_loop().create_future())
        self._answers[number], self._numbers[request.request_id] = answer, number
        try:
            await child.notify("submit", Submit(number, request.prompt_ids, limit, request.sampling))
            return await answer.done
        except ChildDied as error:
            raise self._lost(error) from error
        except asyncio.CancelledError:
            await self.abort(request.request_id)
            raise
        finally:
            del self._answers[number], self._numbers[request.request_id]

    async def abort(self, request_id: str) -> None:
        number = self._numbers.get(request_id)
        if number is not None and self._child is not None:
            with suppress(ChildDied):  # Then the request itself says so.
                await self._child.notify("abort", number)

    async def pause(self) -> None:
        await self._call("pause")

    async def resume(self) -> None:
        await self._call("resume")

    async def load(self, update: WeightUpdate) -> None:
        await self._call("load", update)

    async def capacity(self) -> Capacity:
        return shape(await self._call("capacity"), Capacity)

    async def lost(self) -> EngineError:
        if self._child is not None and not self._down:
            self._lost(ChildDied(await self._child.ended()))
        return EngineError(f"the local engine is gone: {self._down}. {GO_ON}")

    async def close(self) -> None:
        self._down = self._down or "it was closed"
        if self._child is not None:
            await self._child.close()
        if self._stream is not None:
            await self._stream

    async def _call(self, method: str, body: Any = None) -> Any:
        try:
            return await self._alive().call(method, body)
        except ChildFailed as error:
            raise EngineError(str(error).removeprefix("EngineError: ")) from error
        except ChildDied as error:
            raise self._lost(error) from error

    async def _listen(self, child: Child) -> None:
        """Take steps until the process ends, then tell everybody who waits."""
        try:
            await child.call("stream", on_event=self._on_step)
        except ChildDied as error:
            lost = self._lost(error)
            for answer in self._answers.values():
                if not answer.done.done():
                    answer.done.set_exception(lost)

    def _on_step(self, body: Any) -> None:
        step = shape(body, Step)
        for number, token, logprob in zip(step.numbers, step.ids, step.logprobs, strict=True):
            # A request whose caller was cancelled may have been sampled once more.
            if answer := self._answers.get(number):
                answer.add(token, logprob, step.version)
        for ended in step.ended:
            if answer := self._answers.get(ended.number):
                answer.end(ended)

    def _alive(self) -> Child:
        if self._child is None or self._down:
            raise EngineError(f"the local engine cannot answer: {self._down}")
        return self._child

    def _lost(self, error: ChildDied) -> EngineError:
        where = f"; its output is in {self._log_path}" if self._log_path else ""
        self._down = self._down or f"{error}{where}"
        return EngineError(f"the local engine cannot answer: {self._down}")
