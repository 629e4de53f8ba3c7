"""Sampled ids as an assistant message. Any sequence of ids gives a message; whatever is not understood stays text."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from relaxforge.core.messages import Message, Tool, ToolCall, digest
from relaxforge.core.ports import ignore_chunk
from relaxforge.core.turns import ParsedAnswer, TextPiece, TokenChunk
from relaxforge.observe.log import get_logger
from relaxforge.render.live import LiveText
from relaxforge.render.parsers.reading import Reading
from relaxforge.render.parsers.registry import BLOCK_BY_BLOCK, ReasoningParser, ToolCallParser
from relaxforge.render.parsers.think import opens_think, think
from relaxforge.render.tokens import TextTokenizer

_log = get_logger()

PROMPT_TAIL = 16
"""Tokens of the prompt that are looked at to see whether it opened a think block."""


@dataclass(frozen=True, slots=True)
class AnswerReader:
    """Reasoning first, then tool calls. ``stop_token_ids`` at the end of an answer are not part of its text."""

    tokenizer: TextTokenizer
    stop_token_ids: frozenset[int]
    reasoning: ReasoningParser | None
    tool_calls: ToolCallParser | None

    def read(
        self, ids: array[int], *, tools: tuple[Tool, ...], prompt_tail: array[int], stop_match: str | None, salt: bytes
    ) -> ParsedAnswer:
        """The message that ``ids`` mean; white space stays as sampled except what a format itself adds.

        ``prompt_tail`` are the last ids before the answer. Text from ``stop_match`` on is cut. Tool-call ids follow
        from ``salt``, the ids and the call's index, so that a replay gives the same ids.
        """
        text = self._visible(ids, stop_match)
        thought, reading, malformed = "", Reading(text), None
        try:
            if self.reasoning is not None:
                thought, text = self.reasoning(text, self._opened(prompt_tail))
            reading = self.tool_calls(text, tools) if self.tool_calls is not None and tools else Reading(text)
        except Exception as error:  # noqa: BLE001 - parsers may be the user's code; a sampled answer is never lost to it
            _log.warning("parser_failed", error=f"{type(error).__name__}: {error}")
            reading, malformed = Reading(text), f"parser_failed_{type(error).__name__}"
        calls = tuple(
            ToolCall(_call_id(index, salt, ids), name, arguments)
            for index, (name, arguments) in enumerate(reading.calls)
        )
        message = Message("assistant", content=reading.text, reasoning=thought, tool_calls=calls)
        return ParsedAnswer(message, malformed or reading.malformed)

    def live(
        self,
        said: Callable[[TextPiece], None],
        *,
        tools: tuple[Tool, ...],
        prompt_tail: array[int],
        stops: tuple[str, ...],
        prompt: int,
    ) -> Callable[[TokenChunk], None]:
        """A listener that tells ``said`` what ``read`` will call text, see ``LiveText``."""
        reads_calls = self.tool_calls is not None and bool(tools)
        if self.reasoning not in (None, think) or (reads_calls and self.tool_calls not in BLOCK_BY_BLOCK):
            return ignore_chunk
        return LiveText(
            self.tokenizer.decode,
            said,
            self.stop_token_ids,
            stops,
            prompt,
            thinks=self.reasoning is not None,
            opened=self._opened(prompt_tail),
            calls=reads_calls,
        ).take

    def _visible(self, ids: array[int], stop_match: str | None) -> str:
        end = len(ids)
        while end and ids[end - 1] in self.stop_token_ids:
            end -= 1
        text = self.tokenizer.decode(ids[:end])
        return text.partition(stop_match)[0] if stop_match else text

    def _opened(self, prompt_tail: array[int]) -> bool:
        return opens_think(self.tokenizer.decode(prompt_tail[-PROMPT_TAIL:]))


def _call_id(index: int, salt: bytes, ids: array[int]) -> str:
    return "call_" + digest(index.to_bytes(4, "little"), salt, ids.tobytes()).hex()[:24]
