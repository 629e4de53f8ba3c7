"""One training step after the other: the model, its optimiser, and what both need to be saved and published."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from relaxforge.core.errors import StorageError, TrainError
from relaxforge.core.samples import TrainBatch, TrainReport
from relaxforge.core.turns import WeightUpdate
from relaxforge.train.checkpoint import Counters, read_counters, restore_optimiser, save_checkpoint
from relaxforge.train.config import TrainConfig
from relaxforge.train.contexts import FlatContext, optimiser_steps
from relaxforge.train.layout import MicroBatch, micro_batches
from relaxforge.train.loss import LossParts, TokenValues, loss_parts
from relaxforge.train.meter import StepMeter
from relaxforge.train.optimiser import MasterAdamW
from relaxforge.train.policy import Policy, device_of, dtype_of, load_model, shape_of
from relaxforge.train.schedule import learning_rate
from relaxforge.train.weights import publish_weights


class Trainer:
    """Trains the model in the folder ``model_path``, or goes on from the checkpoint ``resume_from``.

    Errors: ``ConfigError`` when either cannot be loaded.
    """

    def __init__(self, model_path: str, config: TrainConfig, resume_from: str | None = None) -> None:
        torch.manual_seed(config.seed)
        device = device_of(config)
        dtype = dtype_of(config, device)
        self._config = config
        self._model_folder = Path(model_path)
        self._counters = read_counters(Path(resume_from)) if resume_from else Counters()
        self._policy = Policy(load_model(resume_from or model_path, dtype, device))
        self._reference = (
            Policy(load_model(config.ref_load or model_path, dtype, device)) if config.use_kl_loss else None
        )
        self._shape = shape_of(self._policy.model, config)
        self._optimiser = MasterAdamW(self._policy.model, config)
        self._published: WeightUpdate | None = None
        if resume_from:
            restore_optimiser(Path(resume_from), self._optimiser)

    @property
    def weight_version(self) -> int:
        """Version of the current weights: 0 at the start, one more after each step that moved them."""
        return self._counters.weight_version

    def describe(self) -> dict[str, object]:
        """What runs where, for the log."""
        model = self._policy.model
        return {
            "device": str(model.device),
            "dtype": str(model.dtype).removeprefix("torch."),
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "weight_version": self.weight_version,
        }

    def train(self, batch: TrainBatch) -> TrainReport:
        """Move the weights by one rollout step: one optimiser step per ``global_batch_size`` Sessions.

        Sessions without signal (all advantages zero) leave the weights alone; when all are, the version stays, too.
        Errors: ``TrainError`` for unusable numbers or a gradient that is not finite; that optimiser step is not taken.
        """
        steps = [self._micro_batches(contexts) for contexts in optimiser_steps(batch, self._config)]
        meter = StepMeter(self.weight_version, len(steps))
        started = self._counters.iteration
        before = self._logprobs_before(steps, batch.temperature)
        for batches, old in zip(steps, before, strict=True):
            self._optimiser_step(batches, old, batch.temperature, meter, first=self._counters.iteration == started)
        if any(steps):
            self._counters = Counters(self._counters.iteration, self.weight_version + 1)
        rate = learning_rate(self._config, max(0, self._counters.iteration - 1))
        metrics = meter.metrics(rate, kl=self._config.use_kl_loss)
        return TrainReport(batch.rollout_id, self.weight_version, metrics)

    def publish(self, directory: str) -> WeightUpdate:
        """Write the current weights for engines; the same version is written once. Errors: ``StorageError``."""
        update = self._published
        if update is None or update.version != self.weight_version or Path(update.path).parent != Path(directory):
            with _storage(f"weights under {directory}"):
                update = self._published = publish_weights(self._policy.model, self.weight_version, Path(directory))
        return update

    def save(self, directory: str) -> None:
        """Write a checkpoint into ``directory``. Errors: ``StorageError``."""
        with _storage(f"checkpoint {directory}"):
            save_checkpoint(Path(directory), self._policy.model, self._optimiser, self._counters, self._model_folder)

    def _micro_batches(self, contexts: Sequence[FlatContext]) -> list[MicroBatch]:
        if self._config.use_dynamic_batch_size:
            return micro_batches(contexts, self._shape)
        size = self._config.micro_batch_size
        pieces = [contexts[start : start + size] for start in range(0, len(contexts), size)]
        return [micro_batch for piece in pieces for micro_batch in micro_batches(piece, self._shape)]

    def _logprobs_before(self, steps: Sequence[Sequence[MicroBatch]], temperature: float) -> list[list[Tensor | None]]:
        """What each sampled token is compared with, per micro-batch.

        ``None`` where it is the current logprob itself: in the first step, when rollout logprobs are not used.
        """
        if self._config.use_rollout_logprobs:
            return [[torch.from_numpy(batch.logprobs) for batch in batches] for batches in steps]
        first: list[list[Tensor | None]] = [[None] * len(batches) for batches in steps[:1]]
        with torch.no_grad():
            return first + [[self._policy(batch, temperature)[0] for batch in batches] for batches in steps[1:]]

    def _optimiser_step(
        self,
        batches: Sequence[MicroBatch],
        before: Sequence[Tensor | None],
        temperature: float,
        meter: StepMeter,
        *,
        first: bool,
    ) -> None:
        self._optimiser.clear()  # A batch that was refused half way has left gradients.
        for batch, old in zip(batches, before, strict=True):
            parts, logprobs = self._backward(batch, old, temperature)
            meter.losses(batch, parts)
            if first:
                meter.engine_difference(batch, logprobs)
        if batches:
            norm = self._optimiser.clip()
            self._require_finite("gradient norm", norm)
            self._optimiser.step(learning_rate(self._config, self._counters.iteration))
            meter.optimiser_step(norm)
        self._counters = Counters(self._counters.iteration + 1, self.weight_version)

    def _backward(self, batch: MicroBatch, old: Tensor | None, temperature: float) -> tuple[LossParts, Tensor]:
        logprobs, entropy = self._policy(batch, temperature)
        device = logprobs.device
        reference = None
        if self._reference is not None:
            with torch.no_grad():
                reference, _ = self._reference(batch, temperature)
        parts = loss_parts(
            TokenValues(
                logprobs=logprobs,
                entropy=entropy if self._config.entropy_coef else entropy.detach(),
                old_logprobs=logprobs.detach() if old is None else old.to(device),
                advantages=torch.from_numpy(batch.advantages).to(device),
                weights=torch.from_numpy(batch.weights).to(device),
                reference=reference,
            ),
            self._config,
        )
        self._require_finite("loss", parts.total.item())
        parts.total.backward()  # type: ignore[no-untyped-call]
        return parts, logprobs

    def _require_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            self._optimiser.clear()
            raise TrainError(
                f"optimiser step {self._counters.iteration}: the {what} is {value}; the weights were left as they are. "
                "Lower --lr, set --clip-grad, or look for rewards and logprobs out of range in the dump"
            )


@contextmanager
def _storage(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise StorageError(f"{what} cannot be written: {error}; mend that and go on with --resume latest") from error
