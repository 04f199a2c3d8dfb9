"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """Cores, CPU model, kernel and load, in one line."""
    load = os.getloadavg()[0]
    return (
        f"{len(os.sched_getaffinity(0))} cores ({_cpu_model()}), Linux {platform.release()}, "
        f"Python {platform.python_version()}; load average {load:.1f}"
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
