"""A decoder-only transformer: embedding, a stack of pre-norm layers, final norm, output matrix. Its one forward path
serves prompt chunks, decoding, trees to verify, and any mixture of them.

What the forms differ in, attention and feed-forward, comes from `layers`; `deepseek_v3` and `llama` build the stack.

Shape letters: T tokens of the batch, Q query rows, N rows of logits, V vocabulary, H hidden size, K tapped layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.infer.batch import Batch
from deepdraft.infer.config import ModelConfig
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.layers.forward_pass import ForwardPass, Queries, all_queries, narrowed_queries
from deepdraft.infer.layers.linear import linear
from deepdraft.infer.layers.norm import RmsNorm
from deepdraft.infer.layers.rope import Rotary
from deepdraft.infer.models.model import Forwarded


@dataclass(frozen=True, slots=True, eq=False)
class DecoderLayer:
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    attention_norm: RmsNorm
    attention: Callable[[Tensor, int, ForwardPass, Queries], Tensor]
    """(x [T, H], layer index, pass, queries) to [Q, H]"""
    feed_forward_norm: RmsNorm
    feed_forward: Callable[[Tensor], Tensor]
    """[Q, H] to [Q, H]"""

    def __call__(self, x: Tensor, layer_index: int, forward_pass: ForwardPass, queries: Queries) -> Tensor:
        """x [T, H] to [Q, H]."""
        x = queries.of(x) + self.attention(self.attention_norm(x), layer_index, forward_pass, queries)
        return x + self.feed_forward(self.feed_forward_norm(x))


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """One model's weights: a `Model`."""

    config: ModelConfig
    embedding: Tensor
    """[V, H]"""
    layers: tuple[DecoderLayer, ...]
    norm: RmsNorm
    output: Tensor
    """[V, H]; the embedding itself where the two are tied"""
    rotary: Rotary
    many_queries: int | None
    """From how many queries of a request on its attention takes the form for many; None where there is one form."""

    @torch.inference_mode()
    def forward(
        self, batch: Batch, pool: PagePool, attention: AttentionBackend, *, tapped_layers: tuple[int, ...] = ()
    ) -> Forwarded:
        """As `Model.forward`. A tap is what leaves its layer: before the final norm, for the last layer too.

        Raises ValueError for a tapped layer that the model doesn't have.
        """
        if not all(0 <= tapped < len(self.layers) for tapped in tapped_layers):
            raise ValueError(f"layers {tapped_layers} can't be tapped, the model has {len(self.layers)}")
        x = F.embedding(batch.token_ids, self.embedding)
        turns = self.rotary.turns(batch.positions, x.dtype)
        forward_pass = ForwardPass(batch.slots, turns, pool, attention)
        queries = all_queries(batch.plan, turns, self.many_queries)
        last = len(self.layers) - 1
        outputs = {}
        for layer_index, layer in enumerate(self.layers[:last]):
            x = layer(x, layer_index, forward_pass, queries)
            if layer_index in tapped_layers:
                outputs[layer_index] = x
        if last in tapped_layers:
            x = outputs[last] = self.layers[last](x, last, forward_pass, queries)
            x = x.index_select(0, batch.logit_rows)
        else:
            x = self._last_layer(x, batch, forward_pass, queries)
        logits = linear(self.norm(x), self.output)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        taps = torch.cat([outputs[tapped] for tapped in tapped_layers], dim=-1) if tapped_layers else None
        return Forwarded(logits, taps)

    def _last_layer(self, x: Tensor, batch: Batch, forward_pass: ForwardPass, queries: Queries) -> Tensor:
        """[N, H]: the last layer's output of the rows whose logits are wanted. Nothing reads its other rows, so where
        it can be, they aren't computed: of a prompt chunk only the keys and values remain to do."""
        last = len(self.layers) - 1
        if len(batch.logit_rows) == len(x):  # said by shapes alone: the host asks no device, which a graph needs
            return self.layers[last](x, last, forward_pass, queries).index_select(0, batch.logit_rows)
        rows = batch.logit_rows.tolist()
        ascending = sorted(set(rows))
        narrowed = narrowed_queries(batch.plan, forward_pass.turns, ascending, self.many_queries)
        x = self.layers[last](x, last, forward_pass, narrowed or queries)
        if narrowed is None:
            return x.index_select(0, batch.logit_rows)
        if rows == ascending:
            return x
        return x[torch.tensor([ascending.index(row) for row in rows], device=x.device)]
