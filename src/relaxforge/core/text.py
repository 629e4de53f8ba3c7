"""Text that agents leave behind, made safe to store: what a database cannot hold, known secrets, too much of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

REPLACEMENT = "\ufffd"
MASK = "[redacted]"
SHORTEST_SECRET = 8
"""Characters. Shorter values stand in ordinary text by chance, so masking them would hide more than it protects."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class Cleaner:
    """Cleans the texts of one Trial and counts what it replaced.

    ``counts`` has ``nul`` and ``surrogate`` (replaced with U+FFFD), ``secret`` (replaced with ``[redacted]``) and
    ``bytes`` (runs that were no UTF-8). Control sequences of terminals stay: they are text, and no page runs them.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        forms = {form for secret in secrets if len(secret) >= SHORTEST_SECRET for form in _forms(secret)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._forms = tuple(longest_first)
        self._secret = re.compile("|".join(_whole(form) for form in longest_first))
        self.longest_secret = max(map(len, forms), default=0)

    def text(self, text: str) -> str:
        """``text`` as valid Unicode without NUL and without the secrets."""
        if not text.isascii() and _SURROGATE.search(text):
            text = self._without_surrogates(text)
        if "\0" in text:
            self.counts["nul"] += text.count("\0")
            text = text.replace("\0", REPLACEMENT)
        if any(form in text for form in self._forms):
            text, found = self._secret.subn(MASK, text)
            self.counts["secret"] += found
        return text

    def value(self, value: Any) -> Any:
        """Decoded JSON with every string in it cleaned, keys too; numbers are never touched."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [item if type(item) in (int, float) else self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        return value

    def decode(self, data: bytes) -> str:
        """UTF-8 as clean text; bytes that are none become U+FFFD."""
        text = data.decode("utf-8", "replace")
        if broken := text.count(REPLACEMENT) - data.count(REPLACEMENT.encode()):
            self.counts["bytes"] += broken
        return self.text(text)

    def _without_surrogates(self, text: str) -> str:
        """Pairs become their character, lone ones U+FFFD."""
        paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        self.counts["surrogate"] += len(_SURROGATE.findall(paired))
        return _SURROGATE.sub(REPLACEMENT, paired)


def _forms(secret: str) -> set[str]:
    """The spellings of a secret in plain text, in JSON text within text, and in a URL."""
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    return {secret, quote(secret, safe=""), *escaped}


def _whole(form: str) -> str:
    """A pattern for one spelling. One of digits alone is a secret only where it is the whole number."""
    return rf"(?<![\d.]){form}(?!\d)" if form.isdecimal() else re.escape(form)


def shorten(text: str, limit: int) -> tuple[str, int]:
    """``text`` in at most ``limit`` bytes of UTF-8: start and end with a marked gap, never half a character.

    Also returns how many bytes were left out; 0 when the text fits.
    """
    return join(text, "", 0, limit)


def join(head: str, tail: str, between: int, limit: int) -> tuple[str, int]:
    """``head``, ``between`` bytes that nobody read, and ``tail``, in at most ``limit`` bytes; as ``shorten``."""
    start, end = head.encode(), tail.encode()
    if not between and len(start) + len(end) <= limit:
        return head + tail, 0
    whole = start + end
    room = max(0, limit - len(_gap(len(whole) + between)))
    front, back = (start, end) if between else (whole, whole)
    kept_front = _decode(front[: (room + 1) // 2])
    kept_back = _decode(back[max(0, len(back) - room // 2) :]) if room // 2 else ""
    left_out = len(whole) + between - len(kept_front.encode()) - len(kept_back.encode())
    return kept_front + (_gap(left_out).decode() if room else "") + kept_back, left_out


def _gap(left_out: int) -> bytes:
    return f"\n[... {left_out} bytes left out ...]\n".encode()


def _decode(cut: bytes) -> str:
    """Valid UTF-8 cut anywhere: the pieces of a character at its ends are left out."""
    return cut.decode("utf-8", "ignore")
