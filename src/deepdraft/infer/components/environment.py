"""What the components ran with: device, threads, versions. The rest of the machine is the caller's to tell."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import torch

from deepdraft.infer.kernels.native_backend import NativeAttention, missing


def torch_environment(device: torch.device) -> dict[str, Any]:
    """Versions, threads and device."""
    reason = missing()
    return {
        "torch": str(torch.__version__),
        "transformers": _version("transformers"),
        "triton": _version("triton"),
        "num_threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "native": NativeAttention().instruction_set if reason is None else f"none: {reason}",
    }


def set_num_threads(num_threads: int | None) -> None:
    """Of torch and the native kernels; None: torch's own choice."""
    if num_threads is not None:
        torch.set_num_threads(num_threads)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
