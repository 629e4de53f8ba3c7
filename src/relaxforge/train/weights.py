"""New weights as files: for engines after every step, and as part of a checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, nn

from relaxforge.core.turns import WeightUpdate

WEIGHTS_FILE = "model.safetensors"
KEEP_PUBLISHED = 2


def write_weights(model: nn.Module, path: Path) -> None:
    """Every weight once, in the number format of training, under its Hugging Face name.

    Tied weights are stored under the first name only (``model.embed_tokens.weight``, not ``lm_head.weight``), as
    ``from_pretrained`` expects them.
    """
    once: dict[tuple[int, int], tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict().items():
        once.setdefault((tensor.data_ptr(), tensor.numel()), (name, tensor))
    save_file({name: tensor.contiguous() for name, tensor in once.values()}, path, metadata={"format": "pt"})


def publish_weights(model: nn.Module, version: int, directory: Path) -> WeightUpdate:
    """Write ``directory/v<version>/model.safetensors``, complete or absent; older folders but one are removed."""
    final, unfinished = directory / f"v{version}", directory / f".v{version}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    write_weights(model, unfinished / WEIGHTS_FILE)
    if final.exists():  # Left behind by an earlier incarnation of the run.
        shutil.rmtree(final)
    unfinished.rename(final)
    newest_first = sorted(directory.glob("v*"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for old in newest_first[KEEP_PUBLISHED:]:
        shutil.rmtree(old, ignore_errors=True)
    return WeightUpdate(version, str(final))
