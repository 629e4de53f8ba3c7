"""Main's end of the process that sends evidence: started beside the run, replaced when it dies, drained at the end."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from relaxforge.ipc.parent import Child, ChildDied, ChildFailed
from relaxforge.observe.log import get_logger
from relaxforge.runs.evidence_process import EvidenceOrder

log = get_logger()

AGAIN_S = 5.0
"""Seconds before a sender that died is replaced."""

DRAINED_AGAIN_S = 0.5
"""The same while the run waits for it."""


class EvidenceSender:
    """Nothing here waits for the workspace but ``drain``."""

    def __init__(self, order: EvidenceOrder, log_path: str) -> None:
        self._order = order
        self._log_path = log_path
        self._child: Child | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    async def start(self) -> None:
        await self._begin()
        self._keeping = asyncio.create_task(self._keep(), name="evidence-sender")

    async def drain(self, limit_s: float) -> str:
        """Wait until everything is sent, for ``limit_s`` seconds at most; why it is not, empty when it is."""
        await self._stop_keeping()
        why = [f"{limit_s:g} s were not enough"]
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                return await self._drained(why)
        return why[-1]

    async def close(self) -> None:
        await self._stop_keeping()
        if self._child is not None:
            await self._child.close(grace_s=1.0)

    async def _drained(self, why: list[str]) -> str:
        while True:
            assert self._child is not None  # noqa: S101 - start comes first
            try:
                return str(await self._child.call("drain", on_event=lambda error: why.append(str(error))))
            except (ChildDied, ChildFailed) as error:
                why.append(f"{error}; its log is {self._log_path}")
            await asyncio.sleep(DRAINED_AGAIN_S)
            await self._begin()

    async def _keep(self) -> None:
        while True:
            assert self._child is not None  # noqa: S101 - start comes first
            how = await self._child.ended()
            log.warning("evidence_sender_lost", how=how, log=self._log_path)
            await asyncio.sleep(AGAIN_S)
            await self._begin()

    async def _begin(self) -> None:
        if self._child is not None:
            await self._child.close()
        self._child = await Child.start("evidence sender", "relaxforge.runs.evidence_process", log_path=self._log_path)
        with suppress(ChildDied):  # Whoever keeps or drains it learns that, too.
            await self._child.notify("follow", self._order)

    async def _stop_keeping(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
            self._keeping = None
