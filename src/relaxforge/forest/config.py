"""How histories are matched and exported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    strict_history: bool = False
    """Match only exact echoes of an answer; a history that differs in reasoning, white space or ids starts a branch."""

    agentic_retry_policy: Literal["auto", "replay", "branch"] = "auto"
    """What an equal request body means: `auto` replays only marked retries and undelivered answers, `replay` always
    answers with the recorded answer, `branch` always samples again."""

    agentic_implicit_export: Literal["linear", "main"] = "linear"
    """Context trained when the agent names none: `linear` takes a strictly linear history and refuses any other,
    `main` takes the Context that grew from the first request."""
