"""A Session whose model is behind somebody else's API: the same conversations, without tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from relaxforge.core.errors import EngineError, RequestError
from relaxforge.core.messages import ModelRequest
from relaxforge.core.ports import HostedModel
from relaxforge.core.turns import (
    FinishReason,
    Generation,
    HostedAnswer,
    ModelTurn,
    Observation,
    Sampling,
    TextPiece,
    log_probs,
    token_ids,
)
from relaxforge.rollout.requests import RequestRecord, RetryPolicy
from relaxforge.rollout.session import Session, SessionIdentity, SessionLimits, discarded, gone


class HostedSession(Session):
    """Asks a hosted model and records messages. Its States have no tokens, so nothing can be trained on them."""

    def __init__(
        self,
        identity: SessionIdentity,
        limits: SessionLimits,
        sampling: Sampling,
        *,
        model: HostedModel,
        strict_history: bool = False,
        retry_policy: RetryPolicy = "auto",
    ) -> None:
        super().__init__(identity, limits, sampling, strict_history=strict_history, retry_policy=retry_policy)
        self._model = model

    async def count(self, request: ModelRequest) -> int:  # noqa: ARG002 - nothing of it helps
        """Refused: only the provider knows its tokens."""
        raise RequestError(
            "tokens of a hosted model cannot be counted before it has answered", status=501, code="not_supported"
        )

    async def _abort(self, request_id: str) -> None:
        await self._model.abort(request_id)

    async def _answer(
        self, request: ModelRequest, record: RequestRecord, _: Callable[[TextPiece], None] | None
    ) -> ModelTurn:
        if request.logprobs:
            raise RequestError("a hosted model gives no logprobs; leave logprobs out", param="logprobs")
        pending = await self._placed(request, record)
        answer = await self._asked(request, record)
        finish = FinishReason.LENGTH if answer.finish == "length" else FinishReason.STOP
        nothing = Generation(token_ids(), log_probs(), (), finish)
        record.state = self.forest.commit(pending, Observation(token_ids()), nothing, answer.message, record.request_id)
        record.hosted_usage = answer.usage
        self.known[answer.message.exact] = answer.message
        if self._sealed:
            raise discarded(self.session_id)
        return ModelTurn(record.request_id, answer.message, answer.finish, answer.usage)

    async def _asked(self, request: ModelRequest, record: RequestRecord) -> HostedAnswer:
        sampling = self._sampling
        wanted = min(request.max_tokens or sampling.max_tokens, self.limits.response)
        sampling = replace(sampling, max_tokens=wanted, stop=request.stop or sampling.stop, seed=request.seed)
        started = time.monotonic()
        try:
            return await self._model.answer(record.request_id, request, sampling)
        except EngineError:
            if self._sealed:
                raise discarded(self.session_id) from None
            if record.abandoned:
                raise gone(record) from None
            raise
        finally:
            record.generation_s = time.monotonic() - started
