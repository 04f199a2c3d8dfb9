"""What a model on disk is to the rest of the stack, whatever its files are.

Tensors go by Hugging Face's names and layouts in every case (`model.layers.0.self_attn.q_proj.weight`, [out, in]).
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from deepdraft.infer.config import ModelConfig
from deepdraft.infer.tokenizer.tokenizer import Tokenizer


class Checkpoint(Protocol):
    """One model on disk, opened: its shape is read, its weights are not yet."""

    @property
    def name(self) -> str:
        """What the model is called: its folder (in the hub's cache owner/name), or the GGUF file without ending."""

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensors in `names`, as stored."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the files is left aside, one line each (weights for multi-token prediction, a vision tower)."""

    def names(self) -> tuple[str, ...]:
        """The tensors there are, but for those that `notes` tells of."""

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """One tensor on the CPU, of the asked dtype (None: as stored; float32 where it is stored in GGUF blocks).

        Raises UsageError when there is no such tensor.
        """

    def unread_names(self) -> tuple[str, ...]:
        """The names never asked for by `tensor`: after loading, weights that nobody knew what to do with."""

    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises UsageError where the files hold none that this stack reads."""
