"""How the requests of a plan are gone through, worked out once and used by every layer of a pass."""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.infer.kernels.padded import PaddedGroup, groups, is_padded, padded_group
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kernels.segment import Reading, reading

MAX_PADDED_BLOCKS = 4
"""Blocks' worth of tokens that a padded group may gather: more requests a call, still within the CPU's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Every request of a plan, once."""

    padded: tuple[PaddedGroup, ...]
    alone: tuple[tuple[int, Reading], ...]
    """Request and how to read it."""


def work(plan: AttentionPlan, *, block_len: int, group_size: int) -> Work:
    """For a layer of which block_len tokens are gathered at a time, group_size query heads sharing a key head."""
    padded: list[PaddedGroup] = []
    alone: list[tuple[int, Reading]] = []
    max_tokens = MAX_PADDED_BLOCKS * block_len
    for requests in groups(plan, group_size=group_size, max_tokens=max_tokens):
        if is_padded(plan, requests, group_size=group_size, max_tokens=max_tokens):
            padded.append(padded_group(plan, requests, group_size=group_size))
        else:
            alone += [(request, reading(plan, request, block_len=block_len)) for request in requests]
    return Work(tuple(padded), tuple(alone))
