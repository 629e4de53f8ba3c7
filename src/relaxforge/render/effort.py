"""Reasoning effort, as model APIs ask for it, in the words of one chat template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relaxforge.render.properties import TemplateProperties
from relaxforge.render.shape import Notes, note

EFFORT = "reasoning_effort"
"""The neutral template argument of a request, and the name that templates with efforts of their own read."""

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Every effort that the model APIs know, in order. ``none`` switches reasoning off."""

SWITCHES = ("enable_thinking", "thinking")
"""Template arguments that turn reasoning on and off: Qwen, GLM, Gemma and Nemotron; DeepSeek, Granite and Kimi."""

USUAL = ("low", "medium", "high")
_UNKNOWN = "no such effort"


def learn_efforts(text: Callable[[Mapping[str, Any]], str | None]) -> tuple[str, ...]:
    """The efforts that a template tells apart; ``text`` renders it with arguments, ``None`` when it raises.

    A template that takes any word is given the usual three: models were trained on those.
    """
    texts = {effort: text({EFFORT: effort}) for effort in EFFORTS}
    taken = {effort: rendered for effort, rendered in texts.items() if rendered is not None}
    if len(set(taken.values())) < 2:
        return ()
    return USUAL if text({EFFORT: _UNKNOWN}) is not None else tuple(taken)


def learn_switch(text: Callable[[Mapping[str, Any]], str | None]) -> str:
    """The name of the template's own switch, empty when it has none."""
    return next((name for name in SWITCHES if text({name: True}) != text({name: False})), "")


def effort_kwargs(effort: str | None, properties: TemplateProperties) -> dict[str, Any]:
    """Template arguments for ``effort``; empty if it is not one of ``EFFORTS``, and where the template has no say."""
    if effort not in EFFORTS:
        return {}
    kwargs: dict[str, Any] = {}
    if properties.thinking_switch:
        kwargs[properties.thinking_switch] = effort != "none"
    if properties.efforts and not (kwargs and effort == "none"):
        kwargs[EFFORT] = _nearest(effort, properties.efforts)
    return kwargs


def translated(kwargs: Mapping[str, Any], properties: TemplateProperties, notes: Notes) -> Mapping[str, Any]:
    """A request's template arguments with a neutral effort in the template's own words.

    What the request says in the template's words wins. An effort that the template cannot follow is counted; one that
    is not of ``EFFORTS`` is given to a template that reads efforts of its own.
    """
    effort = kwargs.get(EFFORT)
    if EFFORT not in kwargs or (properties.efforts and effort is not None and effort not in EFFORTS):
        return kwargs
    others = {name: value for name, value in kwargs.items() if name != EFFORT}
    own = effort_kwargs(effort, properties)
    followed = own and (effort != "none" or properties.thinking_switch or "none" in properties.efforts)
    if effort is not None and not followed:
        note(notes, "reasoning_switch_ignored")
    return {**own, **others}


def _nearest(effort: str, efforts: tuple[str, ...]) -> str:
    """The closest of ``efforts``; of two that are as close, the higher one."""
    wanted = EFFORTS.index(effort)
    return min(efforts, key=lambda known: (abs(EFFORTS.index(known) - wanted), -EFFORTS.index(known)))
