"""How long something takes, and the least that it could take on this machine just now.

On a GPU a run ends when the device is done, so its launches count. Leaves out CUDA graphs: `benchmarks.attention.gpu`
replays them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

BUFFER_BYTES = 1 << 26
"""More than the caches near a core hold."""
GPU_BUFFER_BYTES = 1 << 30
MIN_BYTES = 1 << 16
MATRIX_LEN = 512
GPU_MATRIX_LEN = 4096
MIN_RUNS = 2
RATE_S = 0.05


def least_s(
    run: Callable[[], object], cell_s: float, device: torch.device | None = None, *, is_warm: bool = False
) -> float:
    """The least of the runs that cell_s seconds hold, at least two: one may be held up. Before them one to warm up,
    unless it is warm."""
    is_on_gpu = device is not None and device.type == "cuda"
    if not is_warm:
        run()
    seconds: list[float] = []
    while len(seconds) < MIN_RUNS or sum(seconds) < cell_s:
        if is_on_gpu:
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        run()
        if is_on_gpu:
            torch.cuda.synchronize(device)
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
    """Memory copied, matrices multiplied, on the CPU."""
    machine = Machine()
    return Ceiling(machine.copy_bytes_s(), machine.matrix_flop_s())


class Machine:
    """What one device does a second; each call measures anew, in buffers that are kept."""

    def __init__(
        self, device: torch.device | None = None, dtype: torch.dtype = torch.float32, *, rate_s: float = RATE_S
    ) -> None:
        """dtype: of the matrix product. rate_s: seconds for each rate."""
        self._device = device or torch.device("cpu")
        self._rate_s = rate_s
        is_gpu = self._device.type == "cuda"
        side = GPU_MATRIX_LEN if is_gpu else MATRIX_LEN
        self._source = torch.ones((GPU_BUFFER_BYTES if is_gpu else BUFFER_BYTES) // 4, device=self._device)
        self._target = torch.empty_like(self._source)
        self._square = torch.ones(side, side, dtype=dtype, device=self._device)
        self._product = torch.empty_like(self._square)

    def copy_bytes_s(self, num_bytes: float = BUFFER_BYTES) -> float:
        """As many bytes copied again and again, read and written together: from the cache where it holds them twice.
        On a GPU always from memory."""
        num_copied = len(self._source) if self._device.type == "cuda" else self._num_floats(num_bytes)
        source, target = self._source[:num_copied], self._target[:num_copied]
        return 2 * source.nbytes / self._least_s(lambda: target.copy_(source))

    def read_bytes_s(self, num_bytes: float = BUFFER_BYTES) -> float:
        """As many bytes summed up again and again, so from the cache where it holds them."""
        part = self._source[: self._num_floats(num_bytes)]
        return part.nbytes / self._least_s(part.sum)

    def matrix_flop_s(self) -> float:
        """Square matrices in `dtype`."""
        seconds = self._least_s(lambda: torch.mm(self._square, self._square, out=self._product))
        return float(2 * len(self._square) ** 3 / seconds)

    def _num_floats(self, num_bytes: float) -> int:
        """Never more than the buffer, nor so few that the call takes longer than the work."""
        return int(min(max(num_bytes, MIN_BYTES), self._source.nbytes)) // 4

    def _least_s(self, run: Callable[[], object]) -> float:
        return least_s(run, self._rate_s, self._device)
