"""A drafter for tests that knows what is right, and errs as often as it is told to; it also keeps the books.

It has a layer of its own in the pool, like a model that drafts. What it absorbs there tells each row's token and
position, and before it drafts it reads the rows of the whole prefix back: a row lost, moved wrongly, taken from a
page that somebody else wrote to, or left over from an earlier round, shows at once. Where it drafts it writes rubbish
behind the prefix, as a drafter's own pass does.

Shape letters: L depths, K candidates.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from deepdraft.infer.batch import Rows
from deepdraft.infer.drafters.drafter import DraftRequest
from deepdraft.infer.kv.layout import LayerShape
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.tree.marginals import Marginals

RUBBISH = 1e9
WIDTH = 4


@dataclass
class OracleDrafter:
    """With `texts` (prompt and output of plain runs) it knows how a request goes on."""

    texts: Iterable[Sequence[int]] = ()
    draft_len: int = 5
    first_frac: float = 0.6
    """How often the right token is the likeliest candidate of its depth."""
    second_frac: float = 0.2
    """How often the next one."""
    scratch_len: int = 6
    is_calibrated: bool = False
    vocab_size: int = 256
    name: str = "oracle"
    tapped_layers: tuple[int, ...] = (0,)
    kv_layers: tuple[LayerShape, ...] = (LayerShape(1, 2, WIDTH, is_latent=False),)
    requests: list[DraftRequest] = field(default_factory=list)
    """Of the last call."""
    drafted: list[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]] = field(default_factory=list)
    """(tokens so far, candidates of each depth) of every request of every call."""
    prefix_slots: torch.Tensor | None = None
    """Of the last request of the last call."""

    def absorb(self, rows: Rows, taps: torch.Tensor | None, pool: PagePool) -> None:
        """Row: token and position; and what was tapped, cut to WIDTH columns."""
        if not self.kv_layers:
            assert taps is None
            return
        assert taps is not None and len(taps) == len(rows.token_ids)
        books = torch.stack((rows.token_ids, rows.positions), dim=-1).float()
        pool.write(self._layer(pool), rows.slots, books[:, None], taps[:, None, :WIDTH])

    def draft(self, requests: Sequence[DraftRequest], pool: PagePool, attention: Any, *, top_k: int) -> Any:
        self.requests = list(requests)
        return tuple(self._draft(request, pool, top_k) for request in requests)

    def _draft(self, request: DraftRequest, pool: PagePool, top_k: int) -> Marginals:
        table, num_tokens = request.page_table, len(request.token_ids) - 1
        assert table.num_tokens == num_tokens and request.max_draft_len >= 1
        self.prefix_slots = table.slots(0, num_tokens)
        if self.kv_layers:
            self._check_books(request, pool)
        candidates = self.candidates(request, top_k)
        self.drafted.append((tuple(request.token_ids), tuple(map(tuple, candidates.token_ids.tolist()))))
        return candidates

    def _check_books(self, request: DraftRequest, pool: PagePool) -> None:
        table, num_tokens = request.page_table, request.page_table.num_tokens
        keys = pool.layer(self._layer(pool)).keys[table.slots(0, num_tokens)][:, 0]
        assert keys[:, 0].tolist() == list(request.token_ids[:-1])
        assert keys[:, 1].tolist() == list(range(num_tokens))
        scratch = table.slots(num_tokens, num_tokens + self.scratch_len)
        rubbish = torch.full((self.scratch_len, 1, WIDTH), RUBBISH)
        pool.write(self._layer(pool), scratch, rubbish[..., :2], rubbish)

    def candidates(self, request: DraftRequest, top_k: int) -> Marginals:
        """A function of the tokens so far."""
        so_far = list(request.token_ids)
        known = next((text for text in self.texts if list(text[: len(so_far)]) == so_far), so_far)
        rng = random.Random(str((so_far[-4:], len(so_far))))
        depth_ids, depth_scores = [], []
        for depth in range(min(self.draft_len, request.max_draft_len)):
            place = len(so_far) + depth
            token_ids = rng.sample(range(self.vocab_size), top_k)
            if place < len(known):
                self._place_right(token_ids, known[place], rng)
            probs = sorted((rng.random() for _ in token_ids), reverse=True)
            depth_ids.append(token_ids)
            depth_scores.append(np.log(np.array(probs) / (sum(probs) + 0.5)))
        shape = (len(depth_ids), top_k)
        return Marginals(
            np.array(depth_scores, dtype=np.float32).reshape(shape),
            np.array(depth_ids, dtype=np.int64).reshape(shape),
        )

    def _place_right(self, token_ids: list[int], right: int, rng: random.Random) -> None:
        rank = rng.choices((0, 1, 2), (self.first_frac, self.second_frac, 1 - self.first_frac - self.second_frac))[0]
        if right in token_ids:
            token_ids[token_ids.index(right)] = self.vocab_size  # a token that no prompt has
        if rank < min(2, len(token_ids)):
            token_ids[rank] = right

    def _layer(self, pool: PagePool) -> int:
        return len(pool.layout.layers) - 1


@dataclass
class ForgetfulDrafter(OracleDrafter):
    """Proposes nothing for every other length: plain decode rows beside trees."""

    def candidates(self, request: DraftRequest, top_k: int) -> Marginals:
        found = super().candidates(request, top_k)
        keep = found.draft_len if len(request.token_ids) % 2 else 0
        return Marginals(found.log_probs[:keep], found.token_ids[:keep])
