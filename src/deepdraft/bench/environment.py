"""What a reader needs to know of the client's machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any


def environment() -> dict[str, Any]:
    """Python, platform, cores and the versions of what the client is built on."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "num_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "packages": {name: _version(name) for name in ("httptools", "msgspec", "tokenizers", "xllamacpp")},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
