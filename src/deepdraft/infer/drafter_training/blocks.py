"""Which blocks a step trains: random anchors in random samples, laid out side by side.

An anchor is the index of a bonus token: the block's first row is that token, its other rows are masks, and row k is
to predict the token k behind the anchor. The block sees the context before its anchor, at most a window of it, and
itself. Nothing is drawn but from a generator that is given, so a resumed run draws what an uninterrupted one would.

Shape letters: S sequences, C context tokens, A anchors, B block size, L = B - 1, K tapped layers, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepdraft.infer.drafter_training.sample import Sample
from deepdraft.infer.drafter_training.shape import DrafterShape

NO_LABEL = -100


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of one step."""

    taps: Tensor
    """[S, C, K * H], zeros behind a sample's end"""
    context_positions: Tensor
    """int64 [S, C]"""
    bonus_ids: Tensor
    """int64 [S, A]"""
    block_positions: Tensor
    """int64 [S, A, B]"""
    visible: Tensor
    """bool [S, A, C]"""
    labels: Tensor
    """int64 [S, A, L]; NO_LABEL behind a sample's end"""


def blocks_at(samples: Sequence[Sample], anchors: Tensor, shape: DrafterShape) -> Blocks:
    """The blocks of `samples` at `anchors` int64 [S, A], indices into each sample's kept tokens."""
    context_len = int(anchors.max())
    taps = torch.zeros(len(samples), context_len, samples[0].taps.shape[1], dtype=samples[0].taps.dtype)
    padded = torch.full((len(samples), context_len + shape.block_size), NO_LABEL)
    for row, sample in enumerate(samples):
        # The anchor's own features are not there yet when a block is drafted.
        num_kept = min(context_len, len(sample.token_ids))
        taps[row, :num_kept] = sample.taps[:num_kept]
        num_kept = min(padded.shape[1], len(sample.token_ids))
        padded[row, :num_kept] = sample.token_ids[:num_kept]
    starts = torch.tensor([sample.start for sample in samples])
    within = torch.arange(shape.block_size)
    block_indices = anchors[..., None] + within
    context = torch.arange(context_len)
    visible = (context < anchors[..., None]) & (context >= anchors[..., None] - shape.draft_window)
    tokens = padded[:, None].expand(-1, anchors.shape[1], -1).gather(2, block_indices)
    return Blocks(
        taps=taps,
        context_positions=starts[:, None] + context,
        bonus_ids=tokens[..., 0],
        block_positions=starts[:, None, None] + block_indices,
        visible=visible,
        labels=tokens[..., 1:],
    )


def drawn_anchors(samples: Sequence[Sample], num_anchors: int, draw: torch.Generator) -> Tensor:
    """int64 [S, A], ascending: uniform over the output tokens that have a token behind them, without repetition where
    there are enough of them."""
    rows = []
    for sample in samples:
        first, last = sample.num_prompt_tokens, len(sample.token_ids) - 2
        num_places = max(1, last - first + 1)
        if num_places >= num_anchors:
            chosen = torch.randperm(num_places, generator=draw)[:num_anchors]
        else:
            chosen = torch.randint(num_places, (num_anchors,), generator=draw)
        rows.append(first + chosen.sort().values)
    return torch.stack(rows)
