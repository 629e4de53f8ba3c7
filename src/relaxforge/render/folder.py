"""What the render room reads from a Hugging Face model folder: tokenizer, chat template, end tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relaxforge.core.errors import ConfigError
from relaxforge.render.template import ChatTemplate
from relaxforge.render.tokens import TextTokenizer


def read_tokenizer(folder: str) -> tuple[TextTokenizer, ChatTemplate, tuple[int, ...]]:
    """Tokenizer, chat template and the end-of-sequence ids that the files name. Errors: ``ConfigError``.

    The fast tokenizer class is used directly: ``AutoTokenizer`` would import torch where it is installed.
    """
    from transformers import PreTrainedTokenizerFast

    path = Path(folder)
    if not (path / "tokenizer.json").is_file():
        raise ConfigError(f"{folder} holds no tokenizer.json: name a Hugging Face folder with a fast tokenizer")
    try:
        tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(folder)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"the tokenizer in {folder} cannot be read: {error}") from error
    template = ChatTemplate(
        _chat_template(tokenizer, folder, None),
        _chat_template(tokenizer, folder, []),
        {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
    )
    ends = [*_eos_ids(path / "generation_config.json"), *_eos_ids(path / "config.json"), tokenizer.eos_token_id]
    return TextTokenizer(tokenizer), template, tuple(dict.fromkeys(end for end in ends if end is not None))


def _chat_template(tokenizer: Any, folder: str, tools: list[Any] | None) -> str:
    """The template for conversations without tools, or with them when ``tools`` is a list."""
    try:
        return tokenizer.get_chat_template(tools=tools)  # type: ignore[no-any-return]
    except ValueError:
        raise ConfigError(
            f"{folder} has no chat template: agents talk in messages, so the model needs one (an instruction-tuned "
            "model brings it; else put chat_template.jinja into the folder)"
        ) from None


def _eos_ids(path: Path) -> list[int]:
    """``eos_token_id`` of a configuration file as a list; empty when the file or the key is missing."""
    if not path.is_file():
        return []
    try:
        named = json.loads(path.read_text("utf-8")).get("eos_token_id")
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    values = named if isinstance(named, list) else [named]
    return [value for value in values if isinstance(value, int)]
