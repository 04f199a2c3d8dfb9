"""How much one program of the attention kernel computes at once, and on how many pieces the KV axis is cut.

The tiles are those whose registers and shared memory were found to suffice when compiled ahead of time for each
architecture (`resources`); which of them is fastest can be said only on the device.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_SHARED_BYTES = {
    "sm_80": 166_912,
    "sm_86": 101_376,
    "sm_89": 101_376,
    "sm_90": 232_448,
    "sm_100": 232_448,
    "sm_103": 232_448,
    "sm_120": 101_376,
    "gfx942": 65_536,
    "gfx950": 163_840,
}
"""What one program may use; the CUDA C programming guide's table of compute capabilities, and AMD's LDS sizes. An
architecture that is not listed is taken for the smallest of its vendor."""
WIDE_DIM = 128
"""Columns of a token beyond which tiles must be small for registers and shared memory to suffice."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What one program holds: block_m query rows (nodes x heads) and block_n tokens."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class Splitting:
    """How the prefix is cut. The defaults are estimates; benchmarks/attention/gpu.py tries others."""

    programs_per_sm: int = 2
    """Two hide each other's waits."""
    min_split_len: int = 128
    """Tokens of a split below which merging costs more than reading them elsewhere saves."""
    max_splits: int | None = None
    """None: as many as the device wants; 1: the context is read by one program after the other's end."""

    def num_splits(self, *, max_kv_len: int, num_programs: int, num_sms: int) -> int:
        """On how many pieces the prefix is cut, so that programs cover the device whatever the batch is.

        num_programs is how many there are without splitting (requests x key heads x tiles of rows).
        """
        wanted = min(self.programs_per_sm * num_sms // num_programs, -(-max_kv_len // self.min_split_len))
        return max(1, wanted if self.max_splits is None else min(wanted, self.max_splits))


def tile(arch: str, *, num_rows: int, widest_dim: int, dot_bytes: int) -> Tile:
    """The tile for num_rows query rows of one request and key head (the most of any request).

    widest_dim: columns of a token that a program holds at once. dot_bytes: the size of a number in the matrix
    products, 2, or 4 where they are exact and done without tensor cores.
    """
    is_wide, is_amd = widest_dim > WIDE_DIM, arch.startswith("gfx")
    if dot_bytes == 4:
        return Tile(16, 16 if is_wide else 32, num_warps=4 if is_amd or not is_wide else 8, num_stages=1)
    if is_amd:
        return Tile(16 if is_wide or num_rows <= 16 else 32, 32, num_warps=4, num_stages=1)
    if num_rows <= 16:
        return Tile(16, 32, num_warps=4, num_stages=2) if is_wide else Tile(16, 64, num_warps=4, num_stages=3)
    if is_wide:
        return Tile(32, 32, num_warps=8, num_stages=2)
    return Tile(32 if num_rows <= 32 else 64, 32, num_warps=4, num_stages=2)


def max_shared_bytes(arch: str) -> int:
    """Shared memory (LDS) that one program may use."""
    return MAX_SHARED_BYTES.get(arch, 65_536 if arch.startswith("gfx") else 101_376)
