"""``python -m relaxforge.models.convert GGUF TARGET``: a GGUF file as a Hugging Face folder in bfloat16.

A process of its own, because main never imports torch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedTokenizerFast


def convert(gguf: Path, target: Path) -> None:
    """Write ``config.json``, ``generation_config.json``, ``model.safetensors`` and the tokenizer's files."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    _split_digits(tokenizer)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    # GGUF readers leave this unset.
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(target)
    tokenizer.save_pretrained(target, save_jinja_files=False)


def _split_digits(tokenizer: PreTrainedTokenizerFast) -> None:
    """Restore what GGUF only names (``tokenizer.ggml.pre = smollm``): every digit is a word of its own.

    Without it "=  12" merges its spaces in another way than the model was trained on.
    """
    words = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.backend_tokenizer.pre_tokenizer = words


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
