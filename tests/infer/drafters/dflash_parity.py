"""The drafter held against `plain_dflash`, in float64: what is left between them is rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from drafting_case import DrafterFolder, Drafting
from plain_dflash import PlainDflash
from torch import Tensor

RTOL = 1e-9


def agree(one: Tensor, other: Tensor, rtol: float = RTOL) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() < rtol * other.abs().max())


def plain_of(folder: DrafterFolder, fault: str | None = None) -> PlainDflash:
    return PlainDflash(folder.tensors, folder.config, torch.float64, fault)


def plain_logits(
    drafting: Drafting, folder: DrafterFolder, token_ids: Sequence[int], fault: str | None = None, **values: Any
) -> Tensor:
    """Of a context that is run in one pass over a pool of its own, in order."""
    fresh = Drafting(drafting.target, drafting.drafter, page_size=16, backend="reference")
    taps = fresh.prefill("alone", token_ids)
    target = drafting.target
    plain = plain_of(folder, fault)
    return plain.logits(taps, token_ids[-1], target.embedding, target.output, **values)
