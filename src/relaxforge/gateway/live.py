"""An answer as events, of which the first may be sent while it is still being sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from relaxforge.core.messages import Message
from relaxforge.core.turns import ModelTurn, TextPiece, Usage

Payload = dict[str, Any]


class Live(Protocol):
    """The stream of one answer."""

    def piece(self, piece: TextPiece) -> bytes:
        """Events for text that has just been settled."""
        ...

    def rest(self, turn: ModelTurn) -> bytes:
        """All events that have not been sent yet; without any piece before, the whole sequence."""
        ...


class LiveEvents:
    """For APIs that build an answer up event by event: up to its text at the first piece, from there on at the end.

    ``payloads`` gives the whole sequence of a Turn. ``with_text`` gives the event that carries the text with another
    text in it, and ``None`` for every other event. ``encode`` gets the number of events sent before.
    """

    def __init__(
        self,
        payloads: Callable[[ModelTurn], list[Payload]],
        with_text: Callable[[Payload, str], Payload | None],
        encode: Callable[[Sequence[Payload], int], bytes],
    ) -> None:
        self._payloads = payloads
        self._with_text = with_text
        self._encode = encode
        self._sent = ""
        self._count = 0

    def piece(self, piece: TextPiece) -> bytes:
        so_far = Message("assistant", piece.text, piece.reasoning)
        payloads = self._payloads(ModelTurn(piece.request_id, so_far, "stop", Usage(piece.prompt_tokens, 0)))
        at = self._text_at(payloads)
        begun = payloads[at : at + 1] if self._sent else payloads[: at + 1]
        self._sent += piece.text
        return self._numbered(begun)

    def rest(self, turn: ModelTurn) -> bytes:
        payloads = self._payloads(turn)
        if not self._sent:
            return self._numbered(payloads)
        at = self._text_at(payloads)
        left = turn.message.text[len(self._sent) :]
        last = self._with_text(payloads[at], left) if left else None
        return self._numbered([*([last] if last else []), *payloads[at + 1 :]])

    def _text_at(self, payloads: Sequence[Payload]) -> int:
        return next(at for at, payload in enumerate(payloads) if self._with_text(payload, "") is not None)

    def _numbered(self, payloads: Sequence[Payload]) -> bytes:
        frames = self._encode(payloads, self._count)
        self._count += len(payloads)
        return frames
