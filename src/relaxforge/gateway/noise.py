"""What known harnesses write anew into every request: taken out of system text, so that one conversation stays one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Literal, get_args

Noise = Literal["billing_header", "total_tokens"]
ALL_NOISE: tuple[Noise, ...] = get_args(Noise)

_PATTERNS: dict[str, re.Pattern[str]] = {
    # Claude Code's first system block; version and checksum differ from request to request.
    "billing_header": re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n*"),
    # A running count of the context that is left, as a system message of its own or at the end of the system prompt.
    "total_tokens": re.compile(r"\s*<total_tokens>[^<>\n]{1,60}</total_tokens>"),
}


def without_noise(text: str, noise: Collection[str], noted: Counter[str]) -> str:
    """One piece of system text without what ``noise`` names, counted in ``noted`` under the same names."""
    for name in noise:
        text, removed = _PATTERNS[name].subn("", text)
        noted[name] += removed
    return text
