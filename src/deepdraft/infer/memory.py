"""How many bytes a pool could take: the only place where the operating system or a device is asked."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from deepdraft.errors import UsageError


def available_bytes(device: torch.device, *, root: Path = Path("/")) -> int:
    """Of the device's memory, what is free now: ask after the weights are loaded. On a CPU the smaller of what the
    system has (where it tells no more than its size, half of that) and what its control group (a container's limit)
    leaves; `root` is where /proc and /sys are.

    Raises UsageError where it can't be known.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    limits = (_system_bytes(root), _cgroup_bytes(root / "sys/fs/cgroup"))
    known = [limit for limit in limits if limit is not None]
    if not known:
        raise UsageError("how much memory is free can't be told on this system", hint="state --kv-pool-tokens")
    return max(0, min(known))


def _system_bytes(root: Path) -> int | None:
    meminfo = _fields(root / "proc/meminfo")
    if "MemAvailable:" in meminfo:
        return meminfo["MemAvailable:"] * 1024
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):  # macOS tells how much there is, not what is free
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return None


def _cgroup_bytes(folder: Path) -> int | None:
    """Version 2, then version 1. Files that the kernel can drop from memory count as free."""
    for limit, usage, stat, inactive in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file",
        ),
    ):
        limit_bytes, usage_bytes = _number(folder / limit), _number(folder / usage)
        if limit_bytes is not None and usage_bytes is not None:
            return limit_bytes - usage_bytes + _fields(folder / stat).get(inactive, 0)
    return None


def _number(path: Path) -> int | None:
    """None: no such file, or no limit ("max")."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _fields(path: Path) -> dict[str, int]:
    """Lines of a name, a number, and perhaps a unit."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {name: int(number) for name, number, *_ in map(str.split, lines) if number.isdigit()}
