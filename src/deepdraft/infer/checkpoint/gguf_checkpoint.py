"""A GGUF file of the llama form as a `Checkpoint`: Hugging Face's names and layouts, dequantised when read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.gguf import GgufFile
from deepdraft.infer.checkpoint.gguf_config import EMBEDDING, OUTPUT, ROPE_DIVISORS, gguf_config
from deepdraft.infer.config import GqaShape, ModelConfig
from deepdraft.infer.tokenizer.gguf_bpe import gguf_tokenizer
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_TOP = {
    EMBEDDING: "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    OUTPUT: "lm_head.weight",
}
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GgufCheckpoint:
    """See `Checkpoint`. The file stays mapped into memory as long as the object lives."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError or UnsupportedModel as `open_checkpoint` says."""
        self._path = path
        self._file = GgufFile(path)
        self._config = gguf_config(self._file)
        self._stored_names = {_name(stored): stored for stored in self._file.tensors if stored != ROPE_DIVISORS}
        self._unread = dict.fromkeys(self._stored_names)

    @property
    def name(self) -> str:
        return self._path.stem

    @property
    def config(self) -> ModelConfig:
        return self._config

    @property
    def num_bytes(self) -> int:
        return sum(self._file.tensors[stored].num_bytes for stored in self._stored_names.values())

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def names(self) -> tuple[str, ...]:
        return tuple(self._stored_names)

    def unread_names(self) -> tuple[str, ...]:
        return tuple(self._unread)

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        if name not in self._stored_names:
            raise UsageError(f"the model in {self._path} has no tensor {name}")
        self._unread.pop(name, None)
        array = self._file.array(self._stored_names[name])
        if name.endswith((".q_proj.weight", ".q_proj.bias", ".k_proj.weight", ".k_proj.bias")):
            if len(array) % self._head_dim:
                raise UsageError(f"{name} in {self._path} has {len(array)} rows, not whole heads of {self._head_dim}")
            array = _half_rotated(array, self._head_dim)
        tensor = torch.from_numpy(array)
        return tensor if dtype is None else tensor.to(dtype)

    def tokenizer(self) -> Tokenizer:
        return gguf_tokenizer(self._file.metadata, self._config.eos_token_ids)

    @property
    def _head_dim(self) -> int:
        assert isinstance(self._config.attention, GqaShape)
        return self._config.attention.head_dim


def _name(stored: str) -> str:
    """Hugging Face's name; a tensor without one keeps its own, to be found among the unread."""
    layer = _LAYER.fullmatch(stored)
    if layer is None or layer[2] not in _PARTS:
        return _TOP.get(stored, stored)
    return f"model.layers.{layer[1]}.{_PARTS[layer[2]]}.{layer[3]}"


def _half_rotated(rows: NDArray[np.float32], head_dim: int) -> NDArray[np.float32]:
    """Rows of each head from llama.cpp's order (pairs side by side) to Hugging Face's (pairs half a head apart)."""
    pairs = rows.reshape(-1, head_dim // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
