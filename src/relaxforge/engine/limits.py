"""What every engine refuses before it computes anything."""

from __future__ import annotations

from array import array

from relaxforge.core.errors import EngineError
from relaxforge.core.turns import GenerateRequest


def budget(request: GenerateRequest, new_ids: array[int], vocab_size: int, max_context: int | None) -> int:
    """How many tokens ``request`` may sample: its ``max_tokens``, clipped to what the context has left.

    ``new_ids`` are the prompt ids that have not been checked before. Errors: ``EngineError`` for an empty prompt, a
    ``max_tokens`` below 1, a temperature or top-p that means nothing, an id outside the vocabulary, and a prompt that
    leaves no room in the context.
    """
    sampling, length, wanted = request.sampling, len(request.prompt_ids), request.sampling.max_tokens
    if not length:
        raise _refused(request, "the prompt has no tokens")
    if wanted < 1:
        raise _refused(request, f"max_tokens must be at least 1, got {wanted}")
    if not (sampling.temperature >= 0 and 0 < sampling.top_p <= 1):
        raise _refused(
            request, f"temperature must be >= 0 and top_p in (0, 1], got {sampling.temperature} and {sampling.top_p}"
        )
    if new_ids and not (min(new_ids) >= 0 and max(new_ids) < vocab_size):
        bad = next(token for token in new_ids if not 0 <= token < vocab_size)
        raise _refused(request, f"token id {bad} is outside the vocabulary (0 to {vocab_size - 1})")
    if max_context is None:
        return wanted
    if length >= max_context:
        raise _refused(request, f"a prompt of {length} tokens leaves no room in a context of {max_context}")
    return min(wanted, max_context - length)


def _refused(request: GenerateRequest, why: str) -> EngineError:
    return EngineError(f"request {request.request_id} of session {request.session_id}: {why}")
