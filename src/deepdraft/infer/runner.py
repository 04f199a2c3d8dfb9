"""One forward pass over the parts of a schedule: prefill, decode and verify take the same way.

Builds the batch (tokens, positions, slots, page lists), runs the model over the pool, and lets the drafter take in
what its layers need of the pass; nothing is kept from one pass to the next but the pool. On a CPU a short pass takes
one thread (`pass_threads`), on a GPU decode and verify passes are replayed graphs (`pass_graphs`). Which parts run
and what becomes of the logits is decided elsewhere.

Shape letters: T rows of all parts together, N rows whose logits are wanted, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepdraft.infer.batch import Batch
from deepdraft.infer.drafters.deferred import DeferredDrafter
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.models.model import Forwarded, Model
from deepdraft.infer.pass_graphs import PassGraphs, cuda_graphs
from deepdraft.infer.pass_threads import LayerSize, threads_for
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
        self,
        model: Model,
        pool: PagePool,
        attention: AttentionBackend,
        drafter: DeferredDrafter | None = None,
        *,
        graphs: PassGraphs | None = None,
    ) -> None:
        """graphs: with the drafter's tapped layers; None: those of `cuda_graphs`, if there are such."""
        self._model = model
        self._pool = pool
        self._attention = attention
        self._drafter = drafter
        self._tapped_layers = drafter.tapped_layers if drafter else ()
        self._layer_size = LayerSize.of(model.config)
        self._graphs = graphs or cuda_graphs(model, pool, attention, tapped_layers=self._tapped_layers)

    def run(self, parts: Sequence[Part]) -> Ran:
        """Write the KV rows of all parts, the drafter's too, and return the logits they want. The page tables'
        num_tokens stay as they are: what of a verified tree is kept is not known yet."""
        started_s = time.monotonic()
        with torch.inference_mode(), self._threads(parts):
            batch = build_batch(parts, page_size=self._pool.page_size, device=self._pool.device)
            forwarded = self._forward(batch)
            forward_s = time.monotonic() - started_s
            if self._drafter is None:
                return Ran(forwarded.logits, forward_s, absorb_s=0.0)
            is_plain = all(len(part.token_ids) == 1 for part in parts)
            self._drafter.absorb(batch.rows, forwarded.taps, self._pool, can_wait=is_plain)
        return Ran(forwarded.logits, forward_s, absorb_s=time.monotonic() - started_s - forward_s)

    def _forward(self, batch: Batch) -> Forwarded:
        replayed = self._graphs.forward(batch) if self._graphs else None
        if replayed is not None:
            return replayed
        return self._model.forward(batch, self._pool, self._attention, tapped_layers=self._tapped_layers)

    def _threads(self, parts: Sequence[Part]) -> AbstractContextManager[None]:
        if self._pool.device.type != "cpu":
            return nullcontext()
        return threads_for(self._layer_size.work((len(part.token_ids), part.stop) for part in parts))


def build_batch(parts: Sequence[Part], *, page_size: int, device: torch.device) -> Batch:
    """The parts side by side. Row i of a part is written to the slot of position start + i, whatever its depth."""
    query_lens = [len(part.token_ids) for part in parts]
    plan = AttentionPlan.of(
        page_size=page_size,
        query_lens=query_lens,
        kv_lens=[part.stop for part in parts],
        pages=[part.sequence.page_table.pages for part in parts],
        tail_masks=[None if part.tail_mask is None else part.tail_mask.to(device) for part in parts],
        device=device,
    )
    num_rows, num_logit_rows = sum(query_lens), sum(part.num_logit_rows for part in parts)
    # One array, and so one copy to a device; the batch's tensors are views of it.
    numbers = np.empty(3 * num_rows + num_logit_rows, dtype=np.int64)
    rows = numbers[: 3 * num_rows].reshape(3, num_rows)
    for part, (first, stop) in zip(parts, plan.query_rows, strict=True):
        _fill(part, rows[:, first:stop])
    numbers[3 * num_rows :] = list(_logit_rows(parts))
    sizes = (num_rows, num_rows, num_rows, num_logit_rows)
    token_ids, positions, slots, logit_rows = torch.from_numpy(numbers).to(device).split_with_sizes(sizes)
    return Batch(token_ids=token_ids, positions=positions, slots=slots, plan=plan, logit_rows=logit_rows)


def _fill(part: Part, rows: npt.NDArray[np.int64]) -> None:
    """A part's columns of [3, t]: token ids, positions, slots."""
    start, stop, table = part.start, part.stop, part.sequence.page_table
    rows[0] = part.token_ids
    if stop - start == 1:
        rows[1], rows[2] = start, table.slot(start)
        return
    rows[1] = np.arange(start, stop) if part.depths is None else np.add(part.depths, start)
    rows[2] = table.slot_numbers(start, stop)


def _logit_rows(parts: Sequence[Part]) -> Iterable[int]:
    ends = accumulate(len(part.token_ids) for part in parts)
    return (row for part, end in zip(parts, ends, strict=True) for row in range(end - part.num_logit_rows, end))
