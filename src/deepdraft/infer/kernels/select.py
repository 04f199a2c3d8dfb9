"""Attention back ends by name."""

from __future__ import annotations

from collections.abc import Callable

import torch

from deepdraft.errors import UsageError
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.native.build import COMMAND
from deepdraft.infer.kernels.native_backend import NativeAttention, missing
from deepdraft.infer.kernels.reference import ReferenceAttention
from deepdraft.infer.kernels.torch_backend import TorchAttention

AUTO = "auto"
"""As a name: native where the library was built and runs on the device, else torch."""
BACKENDS: dict[str, Callable[[torch.device], AttentionBackend]] = {
    "native": NativeAttention,
    "reference": lambda _: ReferenceAttention(),
    "torch": TorchAttention,
    "triton": lambda device: _triton(device),
}


def attention_backend(name: str | None, device: torch.device) -> AttentionBackend:
    """The back end of this name; None: the fastest for the device.

    Raises UsageError for a name that isn't known, and for one that this machine or device can't have.
    """
    return BACKENDS[backend_name(name, device)](device)


def backend_name(name: str | None, device: torch.device) -> str:
    """The own name of the back end that `attention_backend` gives. Raises UsageError for a name that isn't known."""
    chosen = name or AUTO
    if chosen == AUTO:
        chosen = "native" if device.type == "cpu" and missing() is None else "torch"
    if chosen not in BACKENDS:
        known = ", ".join(sorted((AUTO, *BACKENDS)))
        raise UsageError(f"no attention back end is called {chosen!r}", hint=f"known: {known}")
    return chosen


def fallback_notice(device: torch.device) -> str | None:
    """Why `auto` is the slower torch back end here, in a line for the start of a process; None: it isn't."""
    reason = missing() if device.type == "cpu" else None
    return reason and f"attention and feed-forward by torch, which is slower: no native library, {reason} ({COMMAND})"


def _triton(device: torch.device) -> AttentionBackend:
    """Imported here alone: triton comes with the builds of torch for GPUs."""
    if device.type != "cuda":
        raise UsageError(f"the triton attention back end runs on a GPU, not on {device}", hint="choose torch")
    try:
        from deepdraft.infer.kernels.triton_backend import TritonAttention
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "triton":
            raise
        hint = "install it, or a build of torch for GPUs, which brings it along; or choose torch"
        raise UsageError("no triton attention back end: triton is not installed", hint=hint) from None
    return TritonAttention(device)
