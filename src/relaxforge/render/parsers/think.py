"""The ``think`` reasoning parser: ``<think>…</think>`` before the answer."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"
_OPENINGS = (OPEN, "[THINK]", "<|channel>thought", "<|open|>think<|sep|>")


def opens_think(prompt: str) -> bool:
    """Whether a prompt ends inside a think block, as the generation prompts of some templates do."""
    return prompt.rstrip().endswith(_OPENINGS)


def think(text: str, opened: bool) -> tuple[str, str]:
    """Split sampled ``text`` into (reasoning, answer)."""
    return between(text, opened, OPEN, CLOSE)


def between(text: str, opened: bool, opening: str, closing: str) -> tuple[str, str]:
    """Split sampled ``text`` into (reasoning, answer).

    The block begins where the answer begins: ``opened`` says that the prompt opened it, else the tag must be the first
    thing in ``text``. Without a closing tag all of it is reasoning (the answer was cut). A closing tag at the end of a
    line, without any opening one before it, closes a block that the model took for granted. Newlines next to the tags
    belong to the format and are dropped, all other white space stays.
    """
    begun = text.lstrip()
    if begun.startswith(opening):
        inside = begun.removeprefix(opening)
    elif opened or _closes_unopened(text, opening, closing):
        inside = text
    else:
        return "", text
    reasoning, _, answer = inside.partition(closing)
    return reasoning.strip("\n"), answer.lstrip("\n")


def _closes_unopened(text: str, opening: str, closing: str) -> bool:
    before, tag, behind = text.partition(closing)
    return bool(tag) and opening not in before and (not behind or behind.startswith("\n"))
