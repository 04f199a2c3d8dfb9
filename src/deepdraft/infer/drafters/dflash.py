"""DFlash as a drafter: what it puts into the pool and how it drafts for several requests in one pass.

After each of the target's passes the keys and values of its tokens' context features are written to the drafter's
own layers. A draft pass runs the whole block of each request, whatever depth is of use: its rows see each other, so a
shorter block would draft otherwise. The block's own keys and values are scratch: they lie in the slots that the pass
that verifies writes next.

At temperature T > 0 a draft's scores are logits / T + Gumbel noise, the noise that the target's sampler adds at that
position for this seed (`sampler`): where drafter and target think alike they then draw alike, although both draw.
What is drafted depends on the request's tokens and its seed alone.

Shape letters: T tokens, R requests, B block size, L depths asked for, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.infer.batch import Rows
from deepdraft.infer.drafters.dflash_model import DflashModel
from deepdraft.infer.drafters.draft_window import DraftWindow
from deepdraft.infer.drafters.drafter import DraftRequest
from deepdraft.infer.errors import UnsupportedModel
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kv.layout import LayerShape
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.layers.forward_pass import ForwardPass, all_queries
from deepdraft.infer.models.model import Model
from deepdraft.infer.noise import gumbel_noise
from deepdraft.infer.pass_threads import LayerSize, threads_for
from deepdraft.infer.tree.marginals import NOTHING, Marginals, marginals


class DflashDrafter:
    """A `Drafter`. Its layers follow the target's in the pool."""

    name = "dflash"

    def __init__(
        self, model: DflashModel, target: Model, *, window: DraftWindow | None = None, block_size: int | None = None
    ) -> None:
        """`window` None: all of the context is seen; `block_size` None: as trained.

        Raises UnsupportedModel for a block longer than the drafter was trained with: it drafts poorly (the paper's
        ablation; shorter is fine).
        """
        trained = model.config.block_size
        self.block_size = trained if block_size is None else block_size
        if not 2 <= self.block_size <= trained:
            reason = f"the drafter was trained with {trained}, and can draft with 2 to {trained}"
            raise UnsupportedModel("block_size", self.block_size, reason=reason, hint="ask for shorter drafts")
        self.window = window or DraftWindow()
        self._model = model
        self._target = target
        self._first_layer = target.config.num_layers
        self._layer_size = LayerSize.of(model.config.layers)

    @property
    def is_calibrated(self) -> bool:
        """No: a drafter is surer of itself than it should be, by how much depends on the text."""
        return False

    @property
    def draft_len(self) -> int:
        """The deepest draft there can be."""
        return self.block_size - 1

    @property
    def scratch_len(self) -> int:
        """The block: bonus token and masks."""
        return self.block_size

    @property
    def tapped_layers(self) -> tuple[int, ...]:
        """As the config states them."""
        return self._model.config.target_layer_ids

    @property
    def kv_layers(self) -> tuple[LayerShape, ...]:
        """One for each draft layer."""
        shape = self._model.config.attention
        layer = LayerShape(shape.num_kv_heads, shape.head_dim, shape.head_dim, is_latent=False)
        return (layer,) * self._model.config.layers.num_layers

    @torch.inference_mode()
    def absorb(self, rows: Rows, taps: Tensor | None, pool: PagePool) -> None:
        """As `Drafter.absorb`. Raises ValueError without taps: a drafter without features drafts at random."""
        if taps is None:
            raise ValueError(f"layers {self.tapped_layers} were not tapped")
        keys, values = self._model.context_rows(taps, rows.positions)
        for index in range(keys.shape[1]):
            pool.write(self._first_layer + index, rows.slots, keys[:, index], values[:, index])

    @torch.inference_mode()
    def draft(
        self, requests: Sequence[DraftRequest], pool: PagePool, attention: AttentionBackend, *, top_k: int
    ) -> tuple[Marginals, ...]:
        """As `Drafter.draft`."""
        depths = [min(self.draft_len, request.max_draft_len) for request in requests]
        asked = [request for request, depth in zip(requests, depths, strict=True) if depth > 0]
        if not asked:
            return (NOTHING,) * len(requests)
        logits = self.logits(asked, pool, attention, num_depths=max(depths))
        for row, request in zip(logits, asked, strict=True):
            if request.temperature > 0:
                row.copy_(noisy_scores(row, request))
        drafted = iter(marginals(logits, top_k))
        return tuple(_first(next(drafted), depth) if depth > 0 else NOTHING for depth in depths)

    @torch.inference_mode()
    def logits(
        self, requests: Sequence[DraftRequest], pool: PagePool, attention: AttentionBackend, *, num_depths: int
    ) -> Tensor:
        """[R, L, V], float32 or wider: of the tokens after each request's bonus token, from one draft pass."""
        tables, lens = [request.page_table for request in requests], [self.block_size] * len(requests)
        seen = [self.window.seen(table, self.block_size) for table in tables]
        spans = [(table.num_tokens, table.num_tokens + self.block_size) for table in tables]
        everything = torch.ones(self.block_size, self.block_size, dtype=torch.bool, device=pool.device)
        plan = AttentionPlan.of(
            page_size=pool.page_size,
            query_lens=lens,
            kv_lens=[kv_len for _, kv_len in seen],
            pages=[pages for pages, _ in seen],
            tail_masks=[None if self._model.config.is_causal else everything] * len(requests),
            device=pool.device,
        )
        positions = torch.cat([torch.arange(*span) for span in spans]).to(pool.device)
        slots = torch.cat([table.slots(*span) for table, span in zip(tables, spans, strict=True)]).to(pool.device)
        turns = self._model.rotary.turns(positions, self._model.dtype)
        forward_pass = ForwardPass(slots, turns, pool, attention)
        work = self._layer_size.work((self.block_size, kv_len) for _, kv_len in seen)
        with threads_for(work) if pool.device.type == "cpu" else nullcontext():
            embedded = F.embedding(self._blocks(requests).to(pool.device), self._target.embedding)
            hidden = self._model.run(embedded, self._first_layer, forward_pass, all_queries(plan, turns, None))
            wanted = hidden.view(len(requests), self.block_size, -1)[:, 1 : 1 + num_depths]
            # Flat, so that it is one matrix product and not one for each request.
            logits = self._model.logits(wanted.flatten(0, 1), self._target.output)
        return logits.view(len(requests), num_depths, -1)

    def _blocks(self, requests: Sequence[DraftRequest]) -> Tensor:
        """int64 [R * B]: a bonus token and masks for each request."""
        blocks = torch.full((len(requests), self.block_size), self._model.config.mask_token_id)
        blocks[:, 0] = torch.tensor([request.token_ids[-1] for request in requests])
        return blocks.flatten()


def noisy_scores(logits: Tensor, request: DraftRequest) -> Tensor:
    """logits [L, V] of the tokens after the bonus token, as `sampler` scores the target's: over the temperature, with
    the noise of the request's seed at each one's position."""
    first = len(request.token_ids)
    noise = gumbel_noise([(request.seed, first + depth) for depth in range(len(logits))], logits.shape[-1])
    # The maximum goes first: no overflow, however small the temperature.
    return (logits - logits.amax(dim=-1, keepdim=True)) / request.temperature + noise.to(logits.device)


def _first(drafted: Marginals, depth: int) -> Marginals:
    return Marginals(drafted.log_probs[:depth], drafted.token_ids[:depth])
