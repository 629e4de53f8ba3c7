"""Which rollouts go into a file, in which shape, under which name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from relaxforge.export import trainers
from relaxforge.export.atif import atif_line
from relaxforge.export.errors import SelectionError
from relaxforge.export.lines import preference_line, rollout_line

KINDS = ("all", "successful", "failed", "recovery", "preference")
"""Every rollout; reward 1; reward below 1; reward between 0 and 1, both excluded; highest against lowest."""

Pairs = Literal["version", "task"]
"""One pair for each environment version, or for each Task in it: only attempts at one Task share a prompt."""

Body = Literal["trajectory", "session"]

DEFAULT_FORMAT = "atif-shaped"


@dataclass(frozen=True, slots=True)
class Format:
    """One shape of line. ``write`` takes the rollout, or the better and the worse one of a pair.

    ``write`` answers ``None`` for what the shape cannot express; such rows are counted as left out.
    """

    name: str
    write: Callable[..., bytes | None]
    bodies: frozenset[Body]
    pairs: Pairs | None = None


def _formats() -> dict[str, Format]:
    trajectory: frozenset[Body] = frozenset({"trajectory"})
    session: frozenset[Body] = frozenset({"session"})
    formats = (
        Format(DEFAULT_FORMAT, rollout_line, trajectory),
        Format("atif", atif_line, trajectory | session),
        Format("trl-sft", trainers.sft_line, session),
        Format("trl-kto", trainers.kto_line, session),
        Format("trl-preference", trainers.preference_line, session, "task"),
        Format("openai-dpo", trainers.openai_dpo_line, session, "task"),
    )
    return {shape.name: shape for shape in formats}


FORMATS = _formats()
_MANIFEST = Format(DEFAULT_FORMAT, preference_line, frozenset(), "version")


@dataclass(frozen=True, slots=True)
class Choice:
    """A kind in a format: what a request for an export means."""

    kind: str
    format: Format

    @property
    def file_name(self) -> str:
        stem = "agentforge-preferences" if self.kind == "preference" else f"agentforge-rollouts-{self.kind}"
        return f"{stem}.jsonl" if self.format.name == DEFAULT_FORMAT else f"{stem}.{self.format.name}.jsonl"


def choose(kind: str, format: str = DEFAULT_FORMAT, *, tokens: bool = False) -> Choice:  # noqa: A002
    """Read the parameters of an export; ``tokens`` adds ids and logprobs to ATIF. Errors: ``SelectionError``."""
    if kind not in KINDS:
        raise SelectionError("kind", _unknown(kind, KINDS))
    if format not in FORMATS:
        raise SelectionError("format", _unknown(format, tuple(FORMATS)))
    chosen = FORMATS[format]
    if kind == "preference" and format == DEFAULT_FORMAT:
        chosen = _MANIFEST
    if (kind == "preference") != (chosen.pairs is not None):
        fitting = [name for name, other in FORMATS.items() if (other.pairs is not None) == (kind == "preference")]
        allowed = [DEFAULT_FORMAT, *fitting] if kind == "preference" else fitting
        raise SelectionError("format", f"{format} does not go with kind {kind}, which takes {', '.join(allowed)}")
    if tokens and format != "atif":
        raise SelectionError("tokens", f"goes with format atif only, not with {format}")
    return Choice(kind, _with_tokens(chosen) if tokens else chosen)


def _with_tokens(chosen: Format) -> Format:
    write: Any = partial(atif_line, tokens=True)
    return Format(chosen.name, write, chosen.bodies, chosen.pairs)


def _unknown(word: str, allowed: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, allowed, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"must be one of {', '.join(allowed)}, got {word[:40]!r}{hint}"
