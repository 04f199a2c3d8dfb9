"""One forward pass over the parts of a schedule: prefill, decode and verify take the same way.

Builds the batch (tokens, positions, slots, page lists), runs the model over the pool, and lets the drafter take in
what its layers need of the pass; nothing is kept from one pass to the next but the pool. Which parts run and what
becomes of the logits is decided elsewhere.

Shape letters: T rows of all parts together, N rows whose logits are wanted, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from deepdraft.infer.batch import Batch
from deepdraft.infer.drafters.drafter import Drafter
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.models.model import Model
from deepdraft.infer.sequence import Part


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """What one pass gave."""

    logits: Tensor
    """[N, V] float32, in the order of the parts"""
    forward_s: float
    absorb_s: float
    """Of the drafter; 0.0 without one."""


class Runner:
    """A model, its pool, the attention back end they run with, and the drafter that looks on."""

    def __init__(
        self, model: Model, pool: PagePool, attention: AttentionBackend, drafter: Drafter | None = None
    ) -> None:
        self._model = model
        self._pool = pool
        self._attention = attention
        self._drafter = drafter

    def run(self, parts: Sequence[Part]) -> Ran:
        """Write the KV rows of all parts, the drafter's too, and return the logits they want. The page tables'
        num_tokens stay as they are: what of a verified tree is kept is not known yet."""
        tapped_layers = self._drafter.tapped_layers if self._drafter else ()
        started_s = time.monotonic()
        with torch.inference_mode():
            batch = build_batch(parts, page_size=self._pool.page_size, device=self._pool.device)
            forwarded = self._model.forward(batch, self._pool, self._attention, tapped_layers=tapped_layers)
            forward_s = time.monotonic() - started_s
            if self._drafter is None:
                return Ran(forwarded.logits, forward_s, absorb_s=0.0)
            self._drafter.absorb(batch, forwarded.taps, self._pool)
        return Ran(forwarded.logits, forward_s, absorb_s=time.monotonic() - started_s - forward_s)


def build_batch(parts: Sequence[Part], *, page_size: int, device: torch.device) -> Batch:
    """The parts side by side. Row i of a part is written to the slot of position start + i, whatever its depth."""
    plan = AttentionPlan.of(
        page_size=page_size,
        query_lens=[len(part.token_ids) for part in parts],
        kv_lens=[part.stop for part in parts],
        pages=[part.sequence.page_table.pages for part in parts],
        tail_masks=[None if part.tail_mask is None else part.tail_mask.to(device) for part in parts],
        device=device,
    )
    slots = torch.cat([part.sequence.page_table.slots(part.start, part.stop) for part in parts])
    return Batch(
        token_ids=_int64((token_id for part in parts for token_id in part.token_ids), device),
        positions=_int64((position for part in parts for position in _positions(part)), device),
        slots=slots.to(device),
        plan=plan,
        logit_rows=_int64(_logit_rows(parts), device),
    )


def _positions(part: Part) -> Iterable[int]:
    if part.depths is None:
        return range(part.start, part.stop)
    return (part.start + depth for depth in part.depths)


def _logit_rows(parts: Sequence[Part]) -> Iterable[int]:
    ends = accumulate(len(part.token_ids) for part in parts)
    return (row for part, end in zip(parts, ends, strict=True) for row in range(end - part.num_logit_rows, end))


def _int64(numbers: Iterable[int], device: torch.device) -> Tensor:
    return torch.tensor(list(numbers), dtype=torch.int64, device=device)
