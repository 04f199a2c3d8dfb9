"""A checkpoint's tensors taken by name, each held to the shape the model needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.kernels.native_experts import widens_weights
from deepdraft.infer.layers.norm import RmsNorm

_HINT = "the weights and the config are not of the same model, or the download is incomplete"


class TensorSource(Protocol):
    """The part of a checkpoint that holds weights."""

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """One tensor on the CPU in this dtype (None: as stored). Raises UsageError when there is no such tensor."""


STORED_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""As configs name them"""


@dataclass(frozen=True, slots=True)
class Weights:
    """Tensors under a common prefix, in the dtype and on the device the model computes with."""

    source: TensorSource
    dtype: torch.dtype
    device: torch.device
    prefix: str = ""
    stored_dtype: torch.dtype | None = None
    """Of the checkpoint's matrices, as its config says; None: not said"""

    def under(self, prefix: str) -> Weights:
        """The same with a longer prefix."""
        return replace(self, prefix=self.prefix + prefix)

    def kept_dtype(self, names: Sequence[str]) -> torch.dtype:
        """The dtype to keep a feed-forward's matrices in: as all of these are stored, where that is narrower and the
        numbers are widened as they are read. They are the same numbers then, in half the memory to read."""
        narrow = self.stored_dtype
        if narrow is None or narrow.itemsize >= self.dtype.itemsize or not widens_weights(self.dtype, self.device):
            return self.dtype
        is_stored = all(self.source.tensor(self.prefix + name).dtype == narrow for name in names)
        return narrow if is_stored else self.dtype

    def take(self, name: str, shape: Sequence[int], *, dtype: torch.dtype | None = None) -> Tensor:
        """One tensor. Raises UsageError, with its name, where it is missing or has another shape."""
        full_name = self.prefix + name
        tensor = self.source.tensor(full_name, dtype or self.dtype)
        if tuple(tensor.shape) != tuple(shape):
            raise UsageError(
                f"tensor {full_name} is {list(tensor.shape)}, the config asks for {list(shape)}", hint=_HINT
            )
        return tensor.to(self.device)

    def joined(
        self, parts: Sequence[tuple[str, int, Tensor | None]], width: int, *, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Matrices [rows, width] as one, top to bottom: (name, rows, order of its rows or None) each.

        Holds no more than one part beside the result.
        """
        dtype = dtype or self.dtype
        out = torch.empty(sum(rows for _, rows, _ in parts), width, dtype=dtype, device=self.device)
        first = 0
        for name, rows, order in parts:
            part = self.take(name, (rows, width), dtype=dtype)
            out[first : first + rows] = part if order is None else part[order.to(part.device)]
            first += rows
        return out

    def norm(self, name: str, width: int, eps: float) -> RmsNorm:
        """An RMS norm; its weight is kept in float32 or wider."""
        return RmsNorm.of(self.take(name, (width,), dtype=torch.promote_types(self.dtype, torch.float32)), eps)
