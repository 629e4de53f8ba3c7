"""How Samples become new weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from relaxforge.core.errors import ConfigError

KlLossType = Literal["k1", "k2", "k3", "low_var_kl"]
LrDecayStyle = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Training: the loss, the optimiser and how a batch is computed."""

    advantage_estimator: Literal["grpo"] = "grpo"
    """How rewards become advantages: grpo compares the Sessions of one Group."""

    normalize_advantages: bool = False
    """Shift and scale the advantages of a rollout step to mean 0 and deviation 1 over its Sessions."""

    eps_clip: float = 0.2
    """Lower clip range: probability ratios below 1 - eps earn nothing more."""

    eps_clip_high: float | None = None
    """Upper clip range: probability ratios above 1 + eps earn nothing more. None: --eps-clip."""

    eps_clip_c: float | None = None
    """Dual clip: with a negative advantage the loss is at most this many times its size; above 1. None: no limit."""

    use_kl_loss: bool = False
    """Compare with the reference model: adds --kl-loss-coef times the KL estimate to the loss and reports it."""

    kl_loss_coef: float = 0.0
    """Weight of the KL estimate in the loss."""

    kl_loss_type: KlLossType = "low_var_kl"
    """Estimate of the KL divergence per token: k1, k2, k3, or k3 clamped to +-10 (low_var_kl). The gradient of k1
    is zero on average."""

    ref_load: str | None = None
    """Folder of the reference model. None: the weights the run started from."""

    entropy_coef: float = 0.0
    """Weight of the entropy bonus in the loss."""

    calculate_per_token_loss: bool = False
    """Average the loss over the sampled tokens of a batch instead of over its Sessions."""

    use_rollout_logprobs: bool = True
    """Compare new probabilities with those the engine sampled with. Off: with those of the trainer before the step."""

    global_batch_size: int | None = None
    """Sessions per optimiser step. None: all of a rollout step."""

    use_dynamic_batch_size: bool = True
    """Fill micro-batches up to --max-tokens-per-gpu. Off: --micro-batch-size Contexts each, however long."""

    max_tokens_per_gpu: int | None = None
    """Tokens per micro-batch, padding included; a longer Context gets one of its own. None: 2048 on a CPU, 16384 on a
    GPU."""

    micro_batch_size: int = 8
    """Contexts per micro-batch when --use-dynamic-batch-size is off."""

    lr: float = 1e-6
    """Learning rate."""

    lr_decay_style: LrDecayStyle = "constant"
    """Course of the learning rate after the warm-up."""

    lr_warmup_iters: int = 0
    """Optimiser steps in which the learning rate grows from 0."""

    lr_decay_iters: int | None = None
    """Optimiser step at which --min-lr is reached, warm-up included. None: the last one of the run."""

    min_lr: float = 0.0
    """Learning rate at the end of linear and cosine decay."""

    weight_decay: float = 0.0
    """Decoupled weight decay per unit of learning rate."""

    adam_beta1: float = 0.9
    """Decay of Adam's mean of gradients."""

    adam_beta2: float = 0.999
    """Decay of Adam's mean of squared gradients."""

    adam_eps: float = 1e-8
    """Added to Adam's denominator."""

    clip_grad: float = 1.0
    """Largest norm of the gradient; a larger one is scaled down. 0: no limit."""

    train_dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Number format of forward and backward; master weights and optimiser are float32. auto: bfloat16 where the
    device computes in it, else float32."""

    train_device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train. auto: a GPU if there is one."""

    seed: int = 1234
    """Seed of the trainer's random state."""

    lora_rank: int | None = None
    """Reserved for adapters; only None is possible yet."""

    def __post_init__(self) -> None:
        if self.lora_rank is not None:
            raise ConfigError("--lora-rank: LoRA is not available yet; leave it out to train all weights")
        for name in ("lr", "adam_eps", "weight_decay", "kl_loss_coef", "entropy_coef"):
            _check(name, getattr(self, name), math.isfinite(getattr(self, name)), "a finite number")
        _check("seed", self.seed, -(2**63) <= self.seed < 2**64, "a number of 64 bits")
        for name in ("lr", "adam_eps", "eps_clip"):
            _check(name, getattr(self, name), getattr(self, name) > 0, "> 0")
        for name in ("min_lr", "weight_decay", "clip_grad", "kl_loss_coef", "lr_warmup_iters"):
            _check(name, getattr(self, name), getattr(self, name) >= 0, ">= 0")
        for name in ("adam_beta1", "adam_beta2"):
            _check(name, getattr(self, name), 0 <= getattr(self, name) < 1, "in [0, 1)")
        for name in ("global_batch_size", "max_tokens_per_gpu", "micro_batch_size", "lr_decay_iters"):
            value = getattr(self, name)
            _check(name, value, value is None or value >= 1, "at least 1")
        _check("eps_clip", self.eps_clip, self.eps_clip < 1, "below 1")
        _check("eps_clip_high", self.eps_clip_high, self.eps_clip_high is None or self.eps_clip_high > 0, "> 0")
        _check("eps_clip_c", self.eps_clip_c, self.eps_clip_c is None or self.eps_clip_c > 1, "> 1")
        self._check_schedule()
        if self.kl_loss_coef and not self.use_kl_loss:
            raise ConfigError("--kl-loss-coef has no effect without --use-kl-loss; add it or set the coefficient to 0")

    def _check_schedule(self) -> None:
        if self.lr_decay_style != "constant":
            if self.lr_decay_iters is not None and self.lr_decay_iters <= self.lr_warmup_iters:
                raise ConfigError(
                    f"--lr-decay-iters {self.lr_decay_iters} must lie behind --lr-warmup-iters {self.lr_warmup_iters}"
                )
            _check("min_lr", self.min_lr, self.min_lr <= self.lr, f"at most --lr {self.lr}")

    @property
    def clip_high(self) -> float:
        """The upper clip range in force."""
        return self.eps_clip if self.eps_clip_high is None else self.eps_clip_high

    @property
    def gradient_without_advantage(self) -> bool:
        """Whether Contexts with advantage 0 move the weights all the same (KL loss or entropy bonus)."""
        return self.use_kl_loss or self.entropy_coef != 0


def _check(name: str, value: object, holds: bool, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"--{name.replace('_', '-')} must be {allowed}, got {value}")
