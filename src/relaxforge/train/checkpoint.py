"""A checkpoint: a Hugging Face folder that any loader reads, plus what training needs to go on as if never stopped.

``trainer_state.safetensors`` holds float32 masters, Adam moments and random states, ``trainer_state.json`` counters.
No pickle. The caller makes the folder durable and complete (temporary name, fsync, rename).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from relaxforge.core.errors import ConfigError
from relaxforge.train.optimiser import MasterAdamW
from relaxforge.train.weights import WEIGHTS_FILE, write_weights

TENSORS_FILE = "trainer_state.safetensors"
COUNTERS_FILE = "trainer_state.json"
SCHEMA_VERSION = 1

COMPANIONS = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model", "*.tiktoken",
    "chat_template*", "generation_config.json", "preprocessor_config.json", "processor_config.json", "LICENSE*",
)  # fmt: skip
"""What belongs to a model folder besides configuration and weights."""


@dataclass(frozen=True, slots=True)
class Counters:
    """``iteration`` counts optimiser steps of the schedule, ``weight_version`` the versions of the weights."""

    iteration: int = 0
    weight_version: int = 0


def save_checkpoint(
    folder: Path, model: PreTrainedModel, optimiser: MasterAdamW, counters: Counters, model_folder: Path
) -> None:
    """Write everything into ``folder``; tokenizer and templates are copied from ``model_folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    for pattern in COMPANIONS:
        for path in filter(Path.is_file, model_folder.glob(pattern)):
            shutil.copyfile(path, folder / path.name)
    write_weights(model, folder / WEIGHTS_FILE)
    save_file(optimiser.state() | _random_state(), folder / TENSORS_FILE)
    described = {"schema_version": SCHEMA_VERSION, **asdict(counters)}
    (folder / COUNTERS_FILE).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def read_counters(folder: Path) -> Counters:
    """The counters of a checkpoint. Errors: ``ConfigError`` when it is not one of ours."""
    try:
        values = json.loads((folder / COUNTERS_FILE).read_text(encoding="utf-8"))
        if values.pop("schema_version") != SCHEMA_VERSION:
            raise ConfigError(f"--resume {folder}: written by another release; only schema {SCHEMA_VERSION} is read")
        return Counters(**values)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"--resume {folder}: {COUNTERS_FILE} is not readable: {error}") from error


def restore_optimiser(folder: Path, optimiser: MasterAdamW) -> None:
    """Put optimiser and random state back. Errors: ``ConfigError`` when they do not fit the model."""
    try:
        tensors = load_file(folder / TENSORS_FILE)
        optimiser.restore(tensors)
    except (OSError, KeyError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"--resume {folder}: {TENSORS_FILE} does not fit this model: {error}") from error
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])


def _random_state() -> dict[str, Tensor]:
    states = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["random.cuda"] = torch.cuda.get_rng_state()
    return states
