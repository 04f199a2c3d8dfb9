"""A product of few rows with a wide matrix in C++ for CPUs: `native/` has the kernel, this module gives it addresses.

torch spends most of such a product on laying the matrix out anew: with an output matrix of 4,096 tokens it takes 2.7
times as long for one row, 3.5 times for 8 and 1.2 times for 128 (one Zen 4 core). Of a narrow matrix neither is the
faster. The matrix is read where it lies, once for all rows; sums are float32, and a row's result depends on no other
row, nor on how many threads there are. What torch does with the same arguments is the definition.

Letters: T rows, I and O numbers of a row and of its result.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from deepdraft.infer.kernels.native.library import NotBuilt, load, shared_threads

MOST_ROWS = 256
FEWEST_COLUMNS = 1024
_FLOAT32 = 0
"""As in attention.h"""
_BEST = 0
"""The best instruction set that there is here"""


@cache
def is_built() -> bool:
    """Whether there is a library to call."""
    try:
        load()
    except NotBuilt:
        return False
    return True


def takes(x: Tensor, weights: Tensor) -> bool:
    """Whether x [T, I] times the transpose of weights [O, I] is for this call: few rows, a wide matrix, float32 on
    the CPU, numbers side by side, and nothing that is to be derived from."""
    return (
        x.dtype is torch.float32
        and weights.dtype is torch.float32
        and x.is_cpu
        and x.ndim == 2
        and 0 < x.shape[0] <= MOST_ROWS
        and weights.shape[0] >= FEWEST_COLUMNS
        and x.is_contiguous()
        and weights.is_contiguous()
        and not (x.requires_grad or weights.requires_grad)
    )


def linear(x: Tensor, weights: Tensor) -> Tensor:
    """float32 [T, O], for arguments that `takes` accepts. Raises NotBuilt."""
    num_columns, dim = weights.shape
    out = torch.empty(x.shape[0], num_columns)
    failed = load().deepdraft_linear(
        weights.data_ptr(),
        x.data_ptr(),
        out.data_ptr(),
        x.shape[0],
        dim,
        num_columns,
        _FLOAT32,
        shared_threads(torch.get_num_threads()).handle,
        _BEST,
    )
    if failed:
        raise MemoryError("no memory for a product")
    return out
