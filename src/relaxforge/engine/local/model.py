"""A transformers model that computes packed tokens over the slots, and takes new weights in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM

from relaxforge.core.errors import EngineError
from relaxforge.engine.local.attention import IMPLEMENTATION, Layout, Piece, SlotCache
from relaxforge.engine.local.packed import can_pack, pack_linears


class LocalModel:
    """Loaded once; ``device`` and ``dtype`` are what it found for ``auto``. Errors: ``EngineError``."""

    def __init__(
        self,
        folder: str,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        dtype: Literal["auto", "bfloat16", "float32"] = "auto",
    ) -> None:
        has_cuda = torch.cuda.is_available()
        if device == "cuda" and not has_cuda:
            raise EngineError("--engine-device cuda: torch sees no CUDA device; use cpu or auto")
        self.device = torch.device("cuda" if has_cuda and device != "cpu" else "cpu")
        self._model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=IMPLEMENTATION, local_files_only=True
        )
        self._model.eval().requires_grad_(False).to(self.device)
        self.dtype: torch.dtype = self._model.dtype
        self._packs = can_pack(self._model)
        self._pack()
        config = self._model.config.get_text_config()
        self._layers: int = config.num_hidden_layers
        self._kv_heads: int = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self._head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._probe()

    @property
    def token_bytes(self) -> int:
        """Bytes of cache for one token."""
        return 2 * self._layers * self._kv_heads * self._head_dim * self.dtype.itemsize

    def new_cache(self, slots: int, slot_tokens: int) -> SlotCache:
        return SlotCache(
            layers=self._layers, slots=slots, slot_tokens=slot_tokens, heads=self._kv_heads, head_dim=self._head_dim,
            dtype=self.dtype, device=self.device,
        )  # fmt: skip

    @torch.inference_mode()
    def forward(self, ids: list[int], layout: Layout) -> torch.Tensor:
        """Logits after the last token of each piece, ``[pieces, vocabulary]`` in float32."""
        out = self._model(
            input_ids=torch.tensor([ids], device=self.device),
            position_ids=layout.positions[None],
            use_cache=False,
            logits_to_keep=layout.last,
            slot_layout=layout,
        )
        logits: torch.Tensor = out.logits[0]
        return logits.float()

    def load(self, folder: str) -> None:
        """Copy ``model.safetensors`` of ``folder`` over the weights. Checked as a whole before the first one changes.

        Errors: ``EngineError`` when the file cannot be read, or its names or shapes are not this model's; the old
        weights stay.
        """
        path = Path(folder) / "model.safetensors"
        try:
            with safe_open(path, framework="pt") as file:
                self._check(path, {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()})  # noqa: SIM118
                own = self._model.state_dict()
                for name in file.keys():  # noqa: SIM118
                    own[name].copy_(file.get_tensor(name))
        except (OSError, SafetensorError) as error:
            raise EngineError(f"new weights {path}: cannot be read: {error}; the old ones stay") from error
        self._pack()

    def _pack(self) -> None:
        if self._packs:
            pack_linears(self._model)

    def _check(self, path: Path, found: dict[str, tuple[int, ...]]) -> None:
        """Tied weights may be given under any of their names, or all."""
        own: dict[str, Any] = self._model.state_dict()
        unknown = sorted(set(found) - set(own))
        given = {own[name].data_ptr() for name in found if name in own}
        missing = sorted(name for name, tensor in own.items() if tensor.data_ptr() not in given)
        shapes = [f"{name} {shape}" for name, shape in found.items() if name in own and own[name].shape != shape]
        for what, names in (("unknown", unknown), ("missing", missing), ("of another shape", shapes)):
            if names:
                listed = ", ".join(names[:3])
                raise EngineError(f"new weights {path}: {len(names)} {what} ({listed}, ...); the old ones stay")

    def _probe(self) -> None:
        """Two small steps through every layer: architectures whose attention goes elsewhere must not answer."""
        cache = self.new_cache(1, 4)
        for piece in (Piece(0, 0, 2), Piece(0, 2, 1)):
            layout = Layout(cache, (piece,))
            self.forward([0] * piece.count, layout)
            if layout.layers_seen != self._layers:
                name = type(self._model).__name__
                raise EngineError(
                    f"--engine local cannot run {name}: "
                    f"{self._layers - layout.layers_seen} of {self._layers} layers compute no plain attention"
                )
