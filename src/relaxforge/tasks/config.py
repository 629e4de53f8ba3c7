"""Which dataset a run works on and how its rows are read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from relaxforge.core.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Data: where Tasks come from."""

    prompt_data: str
    """Dataset to train on: a .jsonl or .parquet file, one Task per row."""

    input_key: str = "input"
    """Column with the messages: a string becomes one user message, a list is taken as Chat messages."""

    metadata_key: str = "metadata"
    """Column with an object that the agent reads as metadata."""

    label_key: str | None = None
    """Column with the expected answer for reward functions, never shown to the agent. None: no label."""

    system_prompt: str | None = None
    """System message put before the messages of rows that have none. None: rows stay as they are."""

    rollout_shuffle: bool = False
    """Shuffle the dataset anew in each epoch, seeded by --rollout-seed."""

    eval_prompt_data: tuple[str, ...] = ()
    """Held-out datasets as NAME PATH pairs, evaluated one after the other."""

    eval_input_key: str | None = None
    """--input-key of the held-out datasets. None: as for training."""

    eval_label_key: str | None = None
    """--label-key of the held-out datasets. None: as for training."""

    def __post_init__(self) -> None:
        if not self.prompt_data:
            raise ConfigError("--prompt-data is empty; name a .jsonl or .parquet file")
        if len(self.eval_prompt_data) % 2:
            raise ConfigError(
                f"--eval-prompt-data takes NAME PATH pairs, got {len(self.eval_prompt_data)} values: "
                f"{' '.join(self.eval_prompt_data)}"
            )
        names = self.eval_prompt_data[::2]
        for name in names:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"--eval-prompt-data: {name!r} cannot name a dataset; use letters, digits, '_', '.' and '-', "
                    "as in: --eval-prompt-data heldout heldout.jsonl"
                )
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"--eval-prompt-data names {twice[0]!r} twice; give each dataset a name of its own")

    @property
    def eval_datasets(self) -> tuple[tuple[str, str], ...]:
        """The held-out datasets as (name, path)."""
        return tuple(zip(self.eval_prompt_data[::2], self.eval_prompt_data[1::2], strict=True))
