"""Token ids as text for ``show``: with the tokenizer of the run's checkpoints or of its model, else as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relaxforge.cli.conversation import TokenTexts
from relaxforge.cli.dump import run_settings
from relaxforge.models.resolve import default_cache_dir


def token_texts(run_dir: Path) -> TokenTexts:
    """How the tokens of this run read. Without a tokenizer an id stands for itself."""
    path = _tokenizer_file(run_dir)
    if path is None:
        return _as_numbers
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    return lambda ids: [tokenizer.decode([token_id], skip_special_tokens=False) for token_id in ids]


def _tokenizer_file(run_dir: Path) -> Path | None:
    """The tokenizer that is at hand; nothing is built or fetched for it."""
    settings = run_settings(run_dir)
    checkpoints, model = Path(settings.get("save", run_dir / "checkpoints")), str(settings.get("model", ""))
    built = default_cache_dir().glob(f"{model}-*/tokenizer.json") if model in ("smollm2", "tiny") else ()
    places = [*checkpoints.glob("*/tokenizer.json"), Path(model) / "tokenizer.json", *built]
    return next((path for path in places if path.is_file()), None)


def _as_numbers(ids: Sequence[int]) -> list[str]:
    return [str(token_id) for token_id in ids]
