"""The ``think`` reasoning parser: ``<think>…</think>`` before the answer."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def opens_think(prompt: str) -> bool:
    """Whether a prompt ends inside a think block, as the generation prompts of some templates do."""
    return prompt.rstrip().endswith(OPEN)


def think(text: str, opened: bool) -> tuple[str, str]:
    """Split sampled ``text`` into (reasoning, answer).

    The block begins where the answer begins: ``opened`` says that the prompt opened it, else the tag must be the first
    thing in ``text``. Without a closing tag all of it is reasoning (the answer was cut). A closing tag at the end of a
    line, without any opening one before it, closes a block that the model took for granted. Newlines next to the tags
    belong to the format and are dropped, all other white space stays.
    """
    begun = text.lstrip()
    if begun.startswith(OPEN):
        inside = begun.removeprefix(OPEN)
    elif opened or _closes_unopened(text):
        inside = text
    else:
        return "", text
    reasoning, _, answer = inside.partition(CLOSE)
    return reasoning.strip("\n"), answer.lstrip("\n")


def _closes_unopened(text: str) -> bool:
    before, tag, behind = text.partition(CLOSE)
    return bool(tag) and OPEN not in before and (not behind or behind.startswith("\n"))
