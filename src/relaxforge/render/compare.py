"""What a full render would have made of a Turn: the difference between the lineage and the template's own view."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relaxforge.core.messages import ModelRequest
from relaxforge.render.tokens import TextTokenizer
from relaxforge.render.window import Window


def differences(
    window: Window,
    tokenizer: TextTokenizer,
    request: ModelRequest,
    split: int,
    served: array[int],
    added: array[int],
    whole: array[int],
    kwargs: Mapping[str, Any],
) -> dict[str, int]:
    """Counts by cause; empty when nothing differs. Errors: ``RenderError``.

    ``window``: the delta rendered with the full history (``whole``) is not the delta that was ``added``.
    ``history_rewritten``: the template now shows the conversation before the answer differently (it strips past
    reasoning, moves tools, ...). ``answer_rewritten``: it shows the answer differently from what was sampled.
    ``answer_retokenised``: the sampled ids are not the tokenizer's own choice for their text. In the last three cases
    the sampled ids are kept, and a full render would have lost them.
    """
    found = {"window": int(added != whole)}
    asked = window.whole(replace(request, messages=request.messages[: split - 1]), kwargs, {})
    now = window.whole(request, kwargs, {})
    found["history_rewritten"] = int(not now.startswith(asked))
    if not found["history_rewritten"]:
        continued = tokenizer.decode([*tokenizer.encode(asked), *served, *added])
        found["answer_rewritten"] = int(continued != tokenizer.decode(tokenizer.encode(now)))
    found["answer_retokenised"] = int(tokenizer.encode(tokenizer.decode(served)) != list(served))
    return {cause: count for cause, count in found.items() if count}
