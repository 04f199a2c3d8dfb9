"""Attention back ends by name."""

from __future__ import annotations

from collections.abc import Callable

import torch

from deepdraft.errors import UsageError
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.reference import ReferenceAttention
from deepdraft.infer.kernels.torch_backend import TorchAttention

BACKENDS: dict[str, Callable[[torch.device], AttentionBackend]] = {
    "reference": lambda _: ReferenceAttention(),
    "torch": TorchAttention,
}


def attention_backend(name: str | None, device: torch.device) -> AttentionBackend:
    """The back end of this name; None: the fastest for the device.

    Raises UsageError for a name that isn't known.
    """
    chosen = name or "torch"
    if chosen not in BACKENDS:
        raise UsageError(f"no attention back end is called {chosen!r}", hint=f"known: {', '.join(sorted(BACKENDS))}")
    return BACKENDS[chosen](device)
