"""The render room's face: one model's tokenizer, chat template and parsers."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from relaxforge.core.errors import ConfigError, RenderError
from relaxforge.core.messages import ModelRequest, Tool
from relaxforge.core.turns import Observation, ParsedAnswer, TextPiece, TokenChunk, token_ids
from relaxforge.render.answer import AnswerReader
from relaxforge.render.closing import already_sampled, missing_end
from relaxforge.render.compare import differences
from relaxforge.render.config import RenderConfig
from relaxforge.render.effort import effort_kwargs, translated
from relaxforge.render.folder import read_tokenizer
from relaxforge.render.parsers.auto import reasoning_parser_of, tool_call_parser_of
from relaxforge.render.parsers.registry import reasoning_parser, tool_call_parser
from relaxforge.render.probe import probe
from relaxforge.render.properties import Level, TemplateProperties
from relaxforge.render.shape import Notes, note
from relaxforge.render.template import ChatTemplate, template_kwargs
from relaxforge.render.tokens import ControlTokens, TextTokenizer
from relaxforge.render.window import Window


class Renderer:
    """Messages to tokens and back. Safe to share between Sessions: it keeps nothing about any conversation.

    ``stop_token_ids``: the template's end of turn first, then every end-of-sequence id that the model's files name.
    ``end_of_turn``: the ids that the template puts behind an answer, separators included.
    """

    tokenizer: TextTokenizer
    properties: TemplateProperties
    stop_token_ids: tuple[int, ...]
    end_of_turn: array[int]

    def __init__(
        self, tokenizer: TextTokenizer, template: ChatTemplate, eos_ids: Iterable[int], config: RenderConfig
    ) -> None:
        self.tokenizer = tokenizer
        self._kwargs = config.template_kwargs
        control = _control_tokens(tokenizer, template, escape=config.agentic_special_tokens == "escape")
        eos_ids = tuple(eos_ids)
        stop_texts = {tokenizer.token_text(end) for end in eos_ids}
        calls, thoughts = _parser_names(config, template)
        self.properties = replace(
            probe(template, control, stop_texts, self._kwargs),
            tool_call_parser=_said(config.agentic_tool_call_parser, calls),
            reasoning_parser=_said(config.agentic_reasoning_parser, thoughts),
        )
        self.end_of_turn = token_ids(tokenizer.encode(self.properties.closing))
        call_end = tokenizer.encode(self.properties.call_closing)
        ends = [end for ids in (self.end_of_turn, call_end) if (end := _last_special(ids, tokenizer)) is not None]
        self.stop_token_ids = tuple(dict.fromkeys([*ends, *eos_ids]))
        self._stops = frozenset(self.stop_token_ids)
        self._control = control
        self._window = Window(template, self.properties, control)
        self._reader = AnswerReader(
            tokenizer,
            self._stops,
            reasoning_parser(thoughts),
            tool_call_parser(calls),
        )

    @classmethod
    def load(cls, folder: str, config: RenderConfig) -> Renderer:
        """The renderer of the model in a Hugging Face ``folder``.

        Errors: ``ConfigError`` when there is no fast tokenizer, no chat template, a template that cannot even show one
        user message, or an unknown parser.
        """
        tokenizer, template, eos_ids = read_tokenizer(folder)
        try:
            return cls(tokenizer, template, eos_ids, config)
        except RenderError as error:
            raise ConfigError(f"the chat template in {folder} is of no use: {error}") from error

    def open(self, request: ModelRequest, most: int | None = None) -> Observation:
        """The whole conversation from its root, with the generation prompt. Errors: ``RenderError``.

        Where it would be far longer than ``most`` tokens: ``TooManyTokensError``.
        """
        notes = self._tool_notes(request)
        text = self._window.whole(request, self._arguments(request, notes), notes)
        return Observation(token_ids(self.tokenizer.encode(text, most)), notes)

    def extend(self, request: ModelRequest, split: int, served: array[int], most: int | None = None) -> Observation:
        """What to put behind the answer ``served`` before the model speaks again. Errors: ``RenderError``.

        ``messages[:split]`` end with the assistant message whose generated ids are ``served``; ``messages[split:]`` are
        new, and may be none. The ids are the end of turn as far as the answer lacks it, the separators, the new
        messages and the generation prompt. Costs as much as the suffix, unless the template needs more
        (``properties.level``, ``properties.tool_level``).
        """
        return self._extended(request, split, served, None, most)

    def parse(
        self, ids: array[int], *, tools: tuple[Tool, ...], prompt_tail: array[int], stop_match: str | None, salt: bytes
    ) -> ParsedAnswer:
        """The assistant message that sampled ``ids`` mean. Never fails; see ``AnswerReader.read``."""
        return self._reader.read(ids, tools=tools, prompt_tail=prompt_tail, stop_match=stop_match, salt=salt)

    def reasoning_kwargs(self, effort: str | None) -> dict[str, Any]:
        """Template arguments that ask for ``effort``, one of ``effort.EFFORTS``; empty where the template has no say.

        A request may as well name the effort in its ``template_kwargs``, as ``reasoning_effort``: ``open`` and
        ``extend`` translate it, and count ``reasoning_switch_ignored`` where the template cannot follow.
        """
        return effort_kwargs(effort, self.properties)

    def live(
        self,
        said: Callable[[TextPiece], None],
        *,
        tools: tuple[Tool, ...],
        prompt_tail: array[int],
        stops: tuple[str, ...],
        prompt: int,
    ) -> Callable[[TokenChunk], None]:
        """A listener for the chunks of one answer, which tells ``said`` the text that ``parse`` will give.

        ``prompt`` is the length of the prompt in tokens. Formats that are not read block by block, and parsers of the
        user's own, settle nothing before the end.
        """
        return self._reader.live(said, tools=tools, prompt_tail=prompt_tail, stops=stops, prompt=prompt)

    def compare(
        self, request: ModelRequest, split: int, served: array[int], observation: Observation
    ) -> dict[str, int]:
        """Differences, by cause, between what ``extend`` gave and a render of the whole conversation; {} when equal.

        Costs as much as the conversation: call it off the hot path. Causes: see ``compare.differences``.
        """
        before = replace(request, messages=request.messages[: split - 1])
        try:
            asked, now = (self._window.whole(part, self._arguments(request, {}), {}) for part in (before, request))
            whole = self._extended(request, split, served, "full").ids
        except RenderError:
            return {"full_render_refused": 1}
        return differences(self.tokenizer, asked, now, served, observation.ids, whole)

    def control_tokens_in(self, text: str) -> int:
        """How many control tokens ``text``, written by people or tools, would smuggle into a prompt."""
        return self._control.count(text)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token adds to a text; may be a part of a character."""
        return self.tokenizer.token_bytes(token_id)

    def token_text(self, token_id: int) -> str:
        """One token alone as text."""
        return self.tokenizer.token_text(token_id)

    def _extended(
        self, request: ModelRequest, split: int, served: array[int], level: Level | None, most: int | None = None
    ) -> Observation:
        notes: Notes = {}
        delta = self._window.delta(request, split, self._arguments(request, notes), notes, level)
        ids = self.tokenizer.encode(delta.text, most)
        closing = self._length(delta.closing)
        held = already_sampled(served, ids, closing, self._stops)
        if missing := missing_end(ids, held, closing, self._stops):
            note(notes, "end_of_turn_added", missing)
        return Observation(token_ids(ids[held:]), notes)

    def _length(self, closing: str) -> int:
        """How many ids ``closing`` is."""
        return len(self.end_of_turn) if closing == self.properties.closing else len(self.tokenizer.encode(closing))

    def _arguments(self, request: ModelRequest, notes: Notes) -> Mapping[str, Any]:
        if request.template_kwargs == "{}":
            return self._kwargs
        return {**self._kwargs, **translated(template_kwargs(request.template_kwargs), self.properties, notes)}

    def _tool_notes(self, request: ModelRequest) -> Notes:
        return {"tools_not_shown": len(request.tools)} if request.tools and not self.properties.tools else {}


def _control_tokens(tokenizer: TextTokenizer, template: ChatTemplate, *, escape: bool) -> ControlTokens:
    """Special tokens, and added tokens that the template itself writes (``<tool_call>``, ``<think>``).

    Errors: ``ConfigError`` when a spelling cannot be escaped.
    """
    named = [text for text in tokenizer.added.values() if text in tokenizer.special or text in template.source]
    control = ControlTokens(named, escape=escape)
    if escape:
        ids = {token_id for token_id, text in tokenizer.added.items() if text in named}
        for text in named:
            if len(text.strip()) < 2 or not ids.isdisjoint(tokenizer.encode(control.treat(text))):
                raise ConfigError(f"--agentic-special-tokens escape cannot escape {text!r} of this tokenizer; use keep")
    return control


def _parser_names(config: RenderConfig, template: ChatTemplate) -> tuple[str | None, str | None]:
    """The parsers of tool calls and of reasoning by name, with ``auto`` decided."""
    calls, thoughts = config.agentic_tool_call_parser, config.agentic_reasoning_parser
    return (
        tool_call_parser_of(template.source) if calls == "auto" else calls,
        reasoning_parser_of(template.source) if thoughts == "auto" else thoughts,
    )


def _said(asked: str | None, chosen: str | None) -> str:
    return f"{chosen} (auto)" if asked == "auto" else chosen or "none"


def _last_special(ids: Sequence[int], tokenizer: TextTokenizer) -> int | None:
    return next((token_id for token_id in reversed(ids) if token_id in tokenizer.added), None)
