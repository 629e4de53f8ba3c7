"""The numbers of one rollout step, added up over its micro-batches and optimiser steps."""

from __future__ import annotations

from collections import defaultdict
from time import perf_counter

import torch
from torch import Tensor

from relaxforge.train.contexts import UNKNOWN_VERSION
from relaxforge.train.layout import MicroBatch
from relaxforge.train.loss import LossParts


class StepMeter:
    """Means per token use the weights of the loss, so Sessions (or tokens) count as they do in training."""

    def __init__(self, weight_version: int, optimiser_steps: int) -> None:
        self._started = perf_counter()
        self._version = weight_version
        self._steps = max(1, optimiser_steps)
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._norms: list[float] = []
        self._difference_max = 0.0
        self._staleness_max = 0

    def losses(self, batch: MicroBatch, parts: LossParts) -> None:
        """Count one micro-batch and its weighted sums."""
        for name, value in parts._asdict().items():
            self._sums[name] += value.item()
        self._sums["sampled"] += len(batch.targets)
        self._sums["computed"] += batch.computed_tokens
        self._sums["context"] += batch.context_tokens
        self._sums["places"] += batch.tokens.size
        self._sums["micro_batches"] += 1
        known = batch.versions[batch.versions != UNKNOWN_VERSION]
        if len(known):
            self._sums["known"] += len(known)
            self._sums["staleness"] += float((self._version - known).sum())
            self._staleness_max = max(self._staleness_max, int(self._version - known.min()))

    def engine_difference(self, batch: MicroBatch, logprobs: Tensor) -> None:
        """Compare with what the engine reported; call it while the weights still are those of ``weight_version``."""
        same = torch.from_numpy(batch.versions == self._version)
        if same.any():
            difference = (logprobs.detach().cpu() - torch.from_numpy(batch.logprobs))[same].abs()
            self._sums["compared"] += len(difference)
            self._sums["difference"] += difference.sum().item()
            self._difference_max = max(self._difference_max, difference.max().item())

    def optimiser_step(self, gradient_norm: float) -> None:
        self._norms.append(gradient_norm)

    def metrics(self, learning_rate: float, *, kl: bool) -> dict[str, float]:
        """The published names. Means over tokens are absent when no token was trained or compared."""
        sums, seconds = self._sums, perf_counter() - self._started
        metrics = {
            "train/loss": sums["total"] / self._steps,
            "train/pg_loss": sums["policy"] / self._steps,
            "train/grad_norm": sum(self._norms) / max(1, len(self._norms)),
            "train/lr": learning_rate,
            "train/optimizer_steps": float(len(self._norms)),
            "train/micro_batches": sums["micro_batches"],
            "train/sampled_tokens": sums["sampled"],
            "train/context_tokens": sums["context"],
            "train/computed_tokens": sums["computed"],
            "train/step_time": seconds,
            "train/tokens_per_s": sums["context"] / seconds,
        }
        if weight := sums["weight"]:
            metrics["train/pg_clipfrac"] = sums["clipped"] / weight
            metrics["train/ppo_kl"] = sums["old_minus_new"] / weight
            metrics["train/entropy"] = sums["entropy"] / weight
            metrics["train/padding_ratio"] = 1 - sums["computed"] / sums["places"]
            if kl:
                metrics["train/kl_loss"] = sums["kl"] / weight
        if compared := sums["compared"]:
            metrics["train/logprob_diff_mean"] = sums["difference"] / compared
            metrics["train/logprob_diff_max"] = self._difference_max
        if known := sums["known"]:
            metrics["train/weight_staleness_mean"] = sums["staleness"] / known
            metrics["train/weight_staleness_max"] = float(self._staleness_max)
        return metrics
