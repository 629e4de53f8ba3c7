"""Text that an agent wrote, made harmless to look at: templates escape it, and this shows what escaping lets pass."""

from __future__ import annotations

import re
from dataclasses import dataclass

FOLD_LINES = 14
FOLD_CHARACTERS = 1_600
LONGEST_SHOWN = 1_000_000
"""Characters of one text that a page shows at most; the rest is in the artifact."""

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)


_C0 = (
    "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI "
    "DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
)
_NAMES = {**dict(enumerate(_C0.split(" "))), 0x7F: "DEL"}


@dataclass(frozen=True, slots=True)
class Folded:
    """The beginning of a text; ``hidden`` characters (of ``total``) are left out."""

    text: str
    hidden: int
    total: int


def visible(text: str) -> str:
    """``text`` with colour codes removed and every other control, bidirectional or invisible character written out.

    Control characters get their names (``⟨ESC⟩``), the others their code points (``⟨U+202E⟩``).
    """
    return _HIDDEN.sub(_picture, _COLOUR.sub("", text.replace("\r\n", "\n")))


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\u27e8{_NAMES.get(code) or f'U+{code:04X}'}\u27e9"


def fold(text: str, lines: int = FOLD_LINES, characters: int = FOLD_CHARACTERS) -> Folded:
    """The first ``lines`` lines and ``characters`` characters, unless hardly anything would be hidden."""
    head = text[:characters]
    parts = head.split("\n", lines)
    if len(parts) > lines:
        head = "\n".join(parts[:lines])
    hidden = len(text) - len(head)
    if hidden <= characters // 8 and text[len(head) :].count("\n") <= lines // 4:
        return Folded(visible(text), 0, len(text))
    return Folded(visible(head), hidden, len(text))


def whole(text: str) -> Folded:
    """All of ``text``, up to what a browser can take."""
    return Folded(visible(text[:LONGEST_SHOWN]), max(0, len(text) - LONGEST_SHOWN), len(text))


def first_line(text: str, characters: int = 160) -> str:
    """One line that says what ``text`` is about."""
    line = text.strip().split("\n", 1)[0]
    return visible(line[:characters]) + ("\u2026" if len(line) > characters or "\n" in text.strip() else "")


def short_line(text: str, characters: int = 140) -> bool:
    """Whether ``text`` fits on one line beside other things."""
    return 0 < len(text) <= characters and "\n" not in text
