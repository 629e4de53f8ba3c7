"""What a full render would have made of a Turn: the difference between the lineage and the template's own view."""

from __future__ import annotations

from array import array

from relaxforge.render.tokens import TextTokenizer


def differences(
    tokenizer: TextTokenizer, asked: str, now: str, served: array[int], added: array[int], whole: array[int]
) -> dict[str, int]:
    """Counts by cause; empty when nothing differs.

    ``asked`` is the whole conversation rendered before the answer, ``now`` with the answer and the new messages;
    ``served`` the sampled ids, ``added`` the delta behind them, ``whole`` the same delta rendered with full history.

    ``window``: ``added`` is not ``whole``. ``history_rewritten``: the template now shows the conversation before the
    answer differently (it strips past reasoning, moves tools, ...). ``answer_rewritten``: it shows the answer
    differently from what was sampled. ``answer_retokenised``: the sampled ids are not the tokenizer's own choice for
    their text. In the last three cases the sampled ids are kept, and a full render would have lost them.
    """
    found = {"window": int(added != whole), "history_rewritten": int(not now.startswith(asked))}
    if not found["history_rewritten"]:
        continued = tokenizer.decode([*tokenizer.encode(asked), *served, *added])
        found["answer_rewritten"] = int(continued != tokenizer.decode(tokenizer.encode(now)))
    found["answer_retokenised"] = int(tokenizer.encode(tokenizer.decode(served)) != list(served))
    return {cause: count for cause, count in found.items() if count}
