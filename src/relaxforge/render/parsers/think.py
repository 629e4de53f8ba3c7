"""The ``think`` reasoning parser: ``<think>…</think>`` before the answer."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def opens_think(prompt: str) -> bool:
    """Whether a prompt ends inside a think block, as the generation prompts of some templates do."""
    return prompt.rstrip().endswith(OPEN)


def think(text: str, opened: bool) -> tuple[str, str]:
    """Split sampled ``text`` into (reasoning, answer).

    ``opened`` says that the prompt already opened the block. Without a closing tag everything after the opening is
    reasoning (the answer was cut). A closing tag without an opening one closes a block that the model took for
    granted. Newlines next to the tags belong to the format and are dropped, all other white space stays.
    """
    if opened:
        lead, inside = "", text.removeprefix(OPEN)
    else:
        lead, tag, inside = text.partition(OPEN)
        if CLOSE in lead or (not tag and CLOSE in text):
            lead, inside = "", text
        elif not tag:
            return "", text
    reasoning, _, answer = inside.partition(CLOSE)
    return reasoning.strip("\n"), (lead if lead.strip() else "") + answer.lstrip("\n")
