"""How long something takes, and the least that it could take on this machine just now."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


def least_s(run: Callable[[], object], cell_s: float) -> float:
    """The least of the runs that cell_s seconds hold, at least one, after one to warm up."""
    run()
    seconds: list[float] = []
    while sum(seconds) < cell_s:
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


@dataclass(frozen=True)
class Ceiling:
    """Rates that nothing in float32 exceeds, from memory."""

    copy_bytes_s: float
    """Read and written together"""
    matrix_flop_s: float

    def seconds(self, num_bytes: float, operations: float) -> float:
        """The least time for reading as many bytes and doing as many operations at once."""
        return max(num_bytes / self.copy_bytes_s, operations / self.matrix_flop_s)


def ceiling() -> Ceiling:
    """64 MiB copied, 1024 x 1024 matrices multiplied."""
    source, square = torch.ones(1 << 24), torch.ones(1024, 1024)
    target, product = torch.empty_like(source), torch.empty_like(square)
    copy_s = least_s(lambda: target.copy_(source), 0.06)
    product_s = least_s(lambda: torch.mm(square, square, out=product), 0.06)
    return Ceiling(2 * source.nbytes / copy_s, 2 * len(square) ** 3 / product_s)
