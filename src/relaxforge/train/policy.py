"""The causal language model in training: loading it, and its log-probabilities for a micro-batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from relaxforge.core.errors import ConfigError, TrainError
from relaxforge.train.config import TrainConfig
from relaxforge.train.layout import MicroBatch, Shape
from relaxforge.train.logprobs import token_logprobs

DEFAULT_MAX_TOKENS = {"cpu": 2048, "cuda": 16384}

SHORT_ROW = 512
"""Up to this width plain matrix products are faster on a CPU than its fused attention kernel, whose backward pass is
slow on short rows; above it their (width x width) matrices cost too much memory."""


def device_of(config: TrainConfig) -> torch.device:
    """The device to train on. Errors: ``ConfigError`` when a GPU is asked for and there is none."""
    available = torch.cuda.is_available()
    if config.train_device == "cuda" and not available:
        raise ConfigError("--train-device cuda: no usable GPU here; use cpu or auto")
    return torch.device("cuda" if available and config.train_device != "cpu" else "cpu")


def dtype_of(config: TrainConfig, device: torch.device) -> torch.dtype:
    """The number format to compute in; ``auto`` takes bfloat16 where the device multiplies it natively."""
    if config.train_dtype != "auto":
        return torch.float32 if config.train_dtype == "float32" else torch.bfloat16
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = any(torch.cpu.get_capabilities().get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return torch.bfloat16 if native else torch.float32


def load_model(folder: str, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The model in a Hugging Face folder, without dropout: its log-probabilities are the policy's.

    Errors: ``ConfigError`` when there is no loadable causal language model.
    """
    if not (Path(folder) / "config.json").is_file():
        raise ConfigError(f"{folder}: no Hugging Face model folder there (config.json is missing)")
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    except (OSError, ValueError, SafetensorError) as error:
        # The folder may be that of --model, --ref-load or --resume: it names itself.
        raise ConfigError(f"{folder}: not loadable as a causal language model: {error}") from error
    return model.to(device).eval()


def shape_of(model: PreTrainedModel, config: TrainConfig) -> Shape:
    """What the layout has to know about ``model``."""
    limit = config.max_tokens_per_gpu or DEFAULT_MAX_TOKENS[model.device.type]
    text = model.config.get_text_config()
    return Shape(text.hidden_size, _sees_every_ancestor(text), limit if config.use_dynamic_batch_size else None)


def _sees_every_ancestor(text: Any) -> bool:
    """Whether every layer is full attention, so that a mask over ancestors says all; a window or a state does not."""
    kinds = getattr(text, "layer_types", None)
    if kinds:
        return all(kind == "full_attention" for kind in kinds)
    return getattr(text, "sliding_window", None) is None and not hasattr(text, "state_size")


class Policy:
    """Log-probabilities of the sampled tokens of a micro-batch under one model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._vocabulary = model.config.get_text_config().vocab_size

    def __call__(self, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
        """(logprobs, entropy), one value per sampled token of ``batch``, on the model's device."""
        if batch.tokens.max() >= self._vocabulary:
            raise TrainError(f"token id {batch.tokens.max()} is outside the model's vocabulary of {self._vocabulary}")
        device = self.model.device
        self.model.set_attn_implementation(self._attention(batch.tokens.shape[1]))
        logits = self.model(
            input_ids=torch.from_numpy(batch.tokens).to(device),
            position_ids=None if batch.visible is None else torch.from_numpy(batch.positions).to(device),
            attention_mask=self._mask(batch),
            use_cache=False,
            logits_to_keep=torch.from_numpy(batch.predicts).to(device),
        ).logits
        rows = torch.from_numpy(batch.logit_rows).to(device)
        logprobs, entropy = token_logprobs(logits, rows, torch.from_numpy(batch.targets).to(device), temperature)
        return logprobs, entropy[rows]

    def _attention(self, width: int) -> Literal["eager", "sdpa"]:
        return "eager" if self.model.device.type == "cpu" and width <= SHORT_ROW else "sdpa"

    def _mask(self, batch: MicroBatch) -> Tensor | None:
        """The additive mask that both attention implementations understand, (rows, 1, width, width)."""
        if batch.visible is None:
            return None
        visible = torch.from_numpy(batch.visible).to(self.model.device)
        mask = torch.zeros(visible.shape, dtype=self.model.dtype, device=visible.device)
        return mask.masked_fill_(~visible, torch.finfo(mask.dtype).min).unsqueeze(1)
