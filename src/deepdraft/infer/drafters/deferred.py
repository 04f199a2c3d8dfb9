"""A drafter that takes in the rows of plain decode steps later, many at once.

A step that decodes plainly has a row a request for the drafter, and taking in one row costs hardly less than taking
in sixty: small products, each with a call's price. A request that decodes plainly for a while would pay that at every
step for drafts that nobody asks for. So such rows wait, with the features they came with, until somebody reads the
drafter's layers or writes where they belong: a draft, a pass with more than a row a request, a move of slots.

Rows that wait for a slot that was given to another token since are overtaken by that token's: the last one stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deepdraft.infer.batch import Rows
from deepdraft.infer.drafters.drafter import Drafter, DraftRequest
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kv.layout import LayerShape
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.tree.marginals import Marginals

MAX_WAITING_ROWS = 64
"""Taken in at once they cost about what two rows do one by one; their features are some hundred kilobytes."""


class DeferredDrafter:
    """A `Drafter` around another one, of one engine. What is drafted is the same."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._waiting: dict[int, tuple[int, int, Tensor | None]] = {}
        """By slot: token id, position, its row of the taps"""

    @property
    def name(self) -> str:
        """The other's."""
        return self._drafter.name

    @property
    def draft_len(self) -> int:
        """The other's."""
        return self._drafter.draft_len

    @property
    def is_calibrated(self) -> bool:
        """The other's."""
        return self._drafter.is_calibrated

    @property
    def scratch_len(self) -> int:
        """The other's."""
        return self._drafter.scratch_len

    @property
    def tapped_layers(self) -> tuple[int, ...]:
        """The other's."""
        return self._drafter.tapped_layers

    @property
    def kv_layers(self) -> tuple[LayerShape, ...]:
        """The other's."""
        return self._drafter.kv_layers

    @property
    def num_waiting_rows(self) -> int:
        """Rows that were not taken in yet."""
        return len(self._waiting)

    def absorb(self, rows: Rows, taps: Tensor | None, pool: PagePool, *, can_wait: bool = False) -> None:
        """As `Drafter.absorb`, now or, where these rows `can_wait`, later: those of a plain decode step."""
        if not can_wait:
            self.settle(pool)
            self._drafter.absorb(rows, taps, pool)
            return
        numbers = zip(rows.slots.tolist(), rows.token_ids.tolist(), rows.positions.tolist(), strict=True)
        for row, (slot, token_id, position) in enumerate(numbers):
            self._waiting[slot] = (token_id, position, None if taps is None else taps[row])
        if len(self._waiting) >= MAX_WAITING_ROWS:
            self.settle(pool)

    def settle(self, pool: PagePool) -> None:
        """Take in what waits: to be done before slots are moved."""
        if self._waiting:
            self._take_in(pool)

    @torch.inference_mode()
    def _take_in(self, pool: PagePool) -> None:
        waiting, self._waiting = self._waiting, {}
        token_ids, positions, features = zip(*waiting.values(), strict=True)
        rows = Rows(*(torch.tensor(each, device=pool.device) for each in (token_ids, positions, list(waiting))))
        taps = None if features[0] is None else torch.stack(features)
        self._drafter.absorb(rows, taps, pool)

    def draft(
        self, requests: Sequence[DraftRequest], pool: PagePool, attention: AttentionBackend, *, top_k: int
    ) -> tuple[Marginals, ...]:
        """As `Drafter.draft`."""
        self.settle(pool)
        return self._drafter.draft(requests, pool, attention, top_k=top_k)
