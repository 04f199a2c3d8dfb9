"""Bytes as a plan prints them: GiB from one on, MiB below, never more digits than mean something."""

from __future__ import annotations

GIB = 2**30
MIB = 2**20


def size_text(num_bytes: float) -> str:
    """72.40 GiB, 896 MiB, 6.9 MiB, -448 MiB, 12 KiB."""
    size = abs(num_bytes)
    if size >= GIB:
        return f"{num_bytes / GIB:.2f} GiB"
    if size >= 10 * MIB:
        return f"{num_bytes / MIB:.0f} MiB"
    if size >= 0.05 * MIB or size == 0:
        return f"{num_bytes / MIB:.1f} MiB" if size else "0"
    return f"{num_bytes / 1024:.1f} KiB"
