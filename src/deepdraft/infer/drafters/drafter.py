"""What a drafter is to the engine: something that proposes the next tokens of each request, right or wrong.

A drafter's own keys and values, where it has any, are further layers of the target's pool (`kv_layers`, appended to
the target's): a token's row is in the same slot of every layer. So whatever happens to a slot, a radix-cache hit, a
move, an eviction, happens to both, and a request that comes from the cache drafts like one that was computed.

What is drafted decides how fast output comes, never what it is: the target's own choice stands at every position.

Shape letters: T tokens, K tapped layers, H hidden size of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from deepdraft.infer.batch import Rows
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kv.layout import LayerShape
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.tree.marginals import Marginals


@dataclass(frozen=True, slots=True, eq=False)
class DraftRequest:
    """One request to draft for. The tokens that are drafted are a function of these values and the absorbed context
    alone."""

    token_ids: Sequence[int]
    """Prompt and output; the last one is the bonus token, which is not in the pool yet. Under one page table tokens
    are only ever appended."""
    page_table: PageTable
    """The request's own: its num_tokens is len(token_ids) - 1, and it has room for `Drafter.scratch_len` more."""
    max_draft_len: int
    """Deeper drafts are of no use."""
    temperature: float
    """The target's; 0: greedy."""
    seed: int
    """Of the target's noise (`noise.gumbel_noise`); read where the temperature is above 0."""


class Drafter(Protocol):
    """Of one engine. A request that ends needs no word of it: what is a request's own goes with its page table."""

    @property
    def name(self) -> str:
        """ "dflash" or "ngram"."""

    @property
    def draft_len(self) -> int:
        """The deepest draft there can be."""

    @property
    def is_calibrated(self) -> bool:
        """Whether its probabilities are counted from what came of its drafts, so that nobody else has to correct
        them."""

    @property
    def scratch_len(self) -> int:
        """Rows that `draft` writes into its own layers behind each prefix; the pass that verifies overwrites them."""

    @property
    def tapped_layers(self) -> tuple[int, ...]:
        """Target layers, from 0, whose outputs `absorb` wants; () for a drafter without a pool layer."""

    @property
    def kv_layers(self) -> tuple[LayerShape, ...]:
        """What the pool stores for the drafter, appended to the target's layers."""

    def absorb(self, rows: Rows, taps: Tensor | None, pool: PagePool) -> None:
        """Write the drafter's own rows into the pool for tokens that the target has run, at their slots and
        positions: for those of EVERY pass, prefill chunks, decode and verify, before they are drafted on. taps
        [T, K * H]; None where there are no tapped layers."""

    def draft(
        self, requests: Sequence[DraftRequest], pool: PagePool, attention: AttentionBackend, *, top_k: int
    ) -> tuple[Marginals, ...]:
        """For each request the likeliest tokens after the bonus token, depth by depth: at most `top_k` a depth, at
        most min(draft_len, max_draft_len) depths, and none where there is nothing to propose."""
