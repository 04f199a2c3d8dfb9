"""Moving cached rows in every layer at once: the accepted nodes of a tree to the places right behind the prefix.

One launch instead of two for each tensor: bytes are few (a few rows a layer), launches are what costs. A program
reads its columns of ALL moved rows before it writes one, and no two programs share a column, so sources and targets
may overlap. Leaves out which rows move: that is the caller's.
"""
# ruff: noqa: N803  -- constants are upper-case in Triton's own style
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_MOVES = 1024
"""Rows in one launch; all of a column are held in registers."""
HELD_WORDS = 4096
"""Words that one program holds: rows x columns."""
NUM_WARPS = 4


@triton.jit
def move_rows(
    tensors,  # int64 [L], addresses
    row_words,  # int32 [L], words in a row of each
    source_slots,  # int64 [N]
    target_slots,  # int64 [N]
    num_moves,  # int32, on the device: of the N, how many are to be moved
    WORD: tl.constexpr,  # the type that rows are copied as
    IS_AMD: tl.constexpr,
    BLOCK_MOVES: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
):
    """Grid: (L, blocks of columns)"""
    base = tl.load(tensors + tl.program_id(0)).to(tl.pointer_type(WORD))
    num_words = tl.load(row_words + tl.program_id(0))
    columns = (tl.program_id(1) * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS))[None, :]
    moves = tl.arange(0, BLOCK_MOVES)
    is_move = moves < tl.load(num_moves)
    sources = tl.load(source_slots + moves, mask=is_move, other=0)[:, None]
    targets = tl.load(target_slots + moves, mask=is_move, other=0)[:, None]
    is_moved = is_move[:, None] & (columns < num_words)
    words = tl.load(base + sources * num_words + columns, mask=is_moved)
    if IS_AMD:
        # A barrier there doesn't wait for loads under way; using what they load before it does.
        words = tl.inline_asm_elementwise(
            "v_mov_b32 $0, $1", "=v,v", [words.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1
        )
    tl.debug_barrier()  # every thread has read before any writes
    tl.store(base + targets * num_words + columns, words, mask=is_moved)


class RowMover:
    """Moves rows of a pool's tensors, [S, ...] each, contiguous, all with as many slots."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Raises ValueError for a tensor that isn't contiguous, or whose rows are not whole 16-bit words."""
        row_bytes = [tensor[0].nbytes for tensor in tensors]
        if not all(tensor.is_contiguous() for tensor in tensors):
            raise ValueError("rows can be moved in contiguous tensors alone")
        if any(size % 2 for size in row_bytes):
            raise ValueError("rows must be whole 16-bit words")
        word_bytes = 2 if any(size % 4 for size in row_bytes) else 4
        device = tensors[0].device
        self._tensors = tuple(tensors)
        """Kept alive: the kernel has only their addresses."""
        self._addresses = torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64, device=device)
        self._row_words = torch.tensor([size // word_bytes for size in row_bytes], dtype=torch.int32, device=device)
        self._max_row_words = max(row_bytes) // word_bytes
        self._word = tl.int16 if word_bytes == 2 else tl.int32

    def move(self, source_slots: Tensor, target_slots: Tensor, num_moves: Tensor | None = None) -> None:
        """Copy the rows of source_slots to target_slots, both int64 [N], targets all different, in every tensor.

        num_moves, int32 [1] on the device: only the first so many (None: all), so that a captured launch can move
        another number at each replay. Raises ValueError for more than MAX_MOVES.
        """
        count = len(source_slots)
        if count > MAX_MOVES:
            raise ValueError(f"{count} rows to move at once, more than {MAX_MOVES}")
        if not count:
            return
        if num_moves is None:
            num_moves = torch.tensor([count], dtype=torch.int32, device=source_slots.device)
        block = blocks(count)
        grid = (len(self._tensors), triton.cdiv(self._max_row_words, block["BLOCK_WORDS"]))
        move_rows[grid](
            self._addresses,
            self._row_words,
            source_slots,
            target_slots,
            num_moves,
            WORD=self._word,
            IS_AMD=torch.version.hip is not None,
            **block,
            num_warps=NUM_WARPS,
        )


def blocks(num_moves: int) -> dict[str, int]:
    """Rows and columns of one program that moves up to so many rows."""
    block_moves = max(16, triton.next_power_of_2(num_moves))
    return {"BLOCK_MOVES": block_moves, "BLOCK_WORDS": min(128, HELD_WORDS // block_moves)}
