"""AdamW on float32 master weights, for a model that may compute in a narrower format."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from relaxforge.train.config import TrainConfig

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class MasterAdamW:
    """Adds up gradients in float32, clips them, steps the masters and rounds them into the model.

    A small step on a bfloat16 weight is lost in rounding (8 bits of mantissa); on its float32 master it is not. A
    float32 model is its own master. The narrow gradient is freed as soon as it has been added.
    """

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        self._clip = config.clip_grad
        self._weights = dict(model.named_parameters())
        self._masters = {
            name: weight if weight.dtype == torch.float32 else nn.Parameter(weight.detach().float())
            for name, weight in self._weights.items()
        }
        for name, weight in self._narrow():
            weight.register_post_accumulate_grad_hook(partial(_add_gradient, self._masters[name]))  # type: ignore[no-untyped-call]
        self._adam = torch.optim.AdamW(
            self._masters.values(),
            lr=config.lr,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_eps,
            weight_decay=config.weight_decay,
            fused=True,
        )

    def clip(self) -> float:
        """Scale the gradients down to the allowed norm; returns the norm before (may be infinite or NaN)."""
        gradients = [master.grad for master in self._masters.values() if master.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self._clip > 0:
            torch.nn.utils.clip_grads_with_norm_(self._masters.values(), self._clip, norm)
        return norm.item()

    def step(self, learning_rate: float) -> None:
        """Move the masters along the gradients, round them into the model, forget the gradients."""
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        self._adam.step()
        self._refresh()
        self.clear()

    def clear(self) -> None:
        """Forget the gradients."""
        for weight in (*self._masters.values(), *self._weights.values()):
            weight.grad = None

    def state(self) -> dict[str, Tensor]:
        """Masters and moments by ``<kind>.<parameter name>``; masters only where they differ from the model."""
        tensors = {f"master.{name}": self._masters[name].detach() for name, _ in self._narrow()}
        for name, master in self._masters.items():
            for moment in MOMENTS:
                if master in self._adam.state:
                    tensors[f"{moment}.{name}"] = self._adam.state[master][moment]
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of ``state``. Errors: ``KeyError`` when a tensor is missing."""
        with torch.no_grad():
            for name, _ in self._narrow():
                self._masters[name].copy_(tensors[f"master.{name}"])
        for name, master in self._masters.items():
            if f"step.{name}" in tensors:
                self._adam.state[master] = {
                    moment: tensors[f"{moment}.{name}"].to(master.device, copy=True) for moment in MOMENTS
                }
        self._refresh()

    def _narrow(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, weight) for name, weight in self._weights.items() if weight.dtype != torch.float32)

    @torch.no_grad()
    def _refresh(self) -> None:
        for name, weight in self._narrow():
            weight.copy_(self._masters[name])


@torch.no_grad()
def _add_gradient(master: nn.Parameter, weight: Tensor) -> None:
    if weight.grad is None:
        return
    if master.grad is None:
        master.grad = weight.grad.float()
    else:
        master.grad.add_(weight.grad)
    weight.grad = None
