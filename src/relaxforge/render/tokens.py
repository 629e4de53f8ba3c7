"""Text and token ids, nothing about conversations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from relaxforge.core.errors import TooManyTokensError

_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
JOINER = "\u200d"
LONG = 16
"""Characters per token that hardly any text reaches."""
SLACK = 1024


def whole_characters(text: str) -> str:
    """``text`` with lone surrogates, which JSON escapes can spell, replaced by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


class TextTokenizer:
    """The port ``core.ports.Tokenizer`` over a fast Hugging Face tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._backend = tokenizer.backend_tokenizer
        added = self._backend.get_added_tokens_decoder()
        self.added: dict[int, str] = {token_id: token.content for token_id, token in added.items()}
        self.special: dict[str, int] = {token.content: token_id for token_id, token in added.items() if token.special}
        self._byte_level = "ByteLevel" in repr(self._backend.decoder)

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """Ids of ``text``; special tokens' spellings become their ids, nothing is added, lone surrogates are U+FFFD.

        Encoding costs a hundred times the text in memory, so a text that is far too long for ``most`` tokens is judged
        by its start. Errors: ``TooManyTokensError``.
        """
        if most is not None and len(text) > (start := LONG * most + SLACK):
            found = len(self.encode(text[:start]))
            if found > most:
                raise TooManyTokensError(found)
        try:
            return self._ids(text)
        except TypeError:
            return self._ids(whole_characters(text))

    def _ids(self, text: str) -> list[int]:
        # A batch of one: unlike ``encode`` it lets other threads work meanwhile, and it keeps no positions in the text.
        return self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids  # type: ignore[no-any-return]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``, special tokens spelled out. Incomplete characters become U+FFFD, unknown ids nothing."""
        return self._backend.decode(ids, skip_special_tokens=False)  # type: ignore[no-any-return]

    def token_text(self, token_id: int) -> str:
        """One token alone, as ``decode`` shows it."""
        return self.decode([token_id])

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token adds to a text; they may be a part of a character. Unknown ids are empty."""
        if token_id in self.added:
            return self.added[token_id].encode()
        piece: str | None = self._backend.id_to_token(token_id)
        if piece is None:
            return b""
        if self._byte_level:
            table = _byte_alphabet()
            return b"".join(bytes([table[char]]) if char in table else char.encode() for char in piece)
        byte = _BYTE_TOKEN.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece.replace("\u2581", " ").encode()


@cache
def _byte_alphabet() -> dict[str, int]:
    """Character to byte in byte-level BPE: printable Latin-1 stands for itself, the others are 256, 257, ... in order.

    Source: the byte alphabet of GPT-2 (Radford et al., 2019).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


class ControlTokens:
    """Spellings that would become control tokens, looked for in what people and tools wrote."""

    def __init__(self, spellings: Iterable[str], *, escape: bool) -> None:
        ordered = sorted({spelling for spelling in spellings if len(spelling.strip()) > 1}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered)) or "(?!)")
        self._first = tuple({spelling[0] for spelling in ordered})
        self._escape = escape

    def count(self, text: str) -> int:
        """How many control tokens ``text`` spells."""
        if not any(char in text for char in self._first):
            return 0
        return len(self._pattern.findall(text))

    def outside(self, text: str, at: int) -> int:
        """``at``, or the start of the control token that ``at`` lies within."""
        spans = (found.span() for found in self._pattern.finditer(text))
        return next((start for start, end in spans if start < at < end), at)

    def first(self, text: str) -> str:
        """The first control token in ``text``, empty when there is none."""
        found = self._pattern.search(text)
        return found[0] if found else ""

    def last(self, text: str) -> str:
        """The last control token in ``text``, empty when there is none."""
        return next(reversed(self._pattern.findall(text)), "")

    def treat(self, text: str) -> str:
        """``text`` as it goes into the template: unchanged, or with every spelling broken after its first character."""
        while self._escape and self._pattern.search(text):
            text = self._pattern.sub(lambda found: found[0][0] + JOINER + found[0][1:], text)
        return text
