"""Token ids as text for ``show``: with the tokenizer that the run left beside its checkpoints, else as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relaxforge.cli.conversation import TokenTexts
from relaxforge.cli.dump import run_settings


def token_texts(run_dir: Path) -> TokenTexts:
    """How the tokens of this run read. Without a tokenizer an id stands for itself."""
    path = _tokenizer_file(run_dir)
    if path is None:
        return _as_numbers
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    return lambda ids: [tokenizer.decode([token_id], skip_special_tokens=False) for token_id in ids]


def _tokenizer_file(run_dir: Path) -> Path | None:
    settings = run_settings(run_dir)
    checkpoints = Path(settings.get("save", run_dir / "checkpoints"))
    places = [*sorted(checkpoints.glob("*/tokenizer.json")), Path(settings.get("model", "")) / "tokenizer.json"]
    return next((path for path in places if path.is_file()), None)


def _as_numbers(ids: Sequence[int]) -> list[str]:
    return [str(token_id) for token_id in ids]
