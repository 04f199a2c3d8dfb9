"""The weights of a DFlash drafter (Chen et al., arXiv 2602.06036) and what is computed with them.

Context features are keys and values only: of each token that the target has run, the outputs of some of its layers,
brought down to one row by `fc` and normed once for all draft layers. A draft pass runs rows of a block, the bonus
token and masks, through Qwen3 layers that attend to those and to each other. A mask's row predicts the token of its
own place, not the next one. Embedding and output matrix are the target's.

Shape letters: T tokens, K tapped layers, H hidden size, L draft layers, Hk key/value heads, D head dimension,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.folder import FolderCheckpoint
from deepdraft.infer.drafters.dflash_config import DflashConfig
from deepdraft.infer.layers.forward_pass import ForwardPass, Queries
from deepdraft.infer.layers.gqa import GroupedQueryAttention
from deepdraft.infer.layers.linear import linear
from deepdraft.infer.layers.norm import RmsNorm
from deepdraft.infer.layers.rope import Rotary, rotate
from deepdraft.infer.models.decoder import DecoderLayer
from deepdraft.infer.models.llama import llama_attention, llama_layer
from deepdraft.infer.models.model import Model
from deepdraft.infer.models.weights import STORED_DTYPES, Weights


@dataclass(frozen=True, slots=True, eq=False)
class ContextProjection:
    """From context features to the keys and values of every draft layer, in one call.

    Its rows are copies of the layers' own (3 % of a Kimi K2.6 drafter's weights), which draft passes use.
    """

    matrix: Tensor
    """[L * 2 * Hk * D, H]: of each layer keys, then values"""
    bias: Tensor | None
    key_norm: RmsNorm
    """Its weight is [L, Hk, D]"""

    @classmethod
    def of(cls, attentions: Sequence[GroupedQueryAttention]) -> ContextProjection:
        """That of these layers. They have a norm of keys, as Qwen3's."""
        num_heads = attentions[0].shape.num_qo_heads
        first = num_heads * attentions[0].shape.head_dim
        norms = [attention.qk_norm for attention in attentions if attention.qk_norm is not None]
        biases = [attention.qkv_bias[first:] for attention in attentions if attention.qkv_bias is not None]
        key_weights = torch.stack([norm.scaled_weight[num_heads:] for norm in norms])
        return cls(
            matrix=torch.cat([attention.qkv[first:] for attention in attentions]),
            bias=torch.cat(biases) if biases else None,
            key_norm=RmsNorm(key_weights, norms[0].floor),
        )

    def __call__(self, features: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
        """features [T, H], turns [T, D / 2] to keys and values, each [T, L, Hk, D]."""
        num_layers, num_kv_heads, head_dim = self.key_norm.scaled_weight.shape
        rows = F.linear(features, self.matrix, self.bias).view(len(features), num_layers, 2 * num_kv_heads, head_dim)
        keys, values = rows.tensor_split((num_kv_heads,), dim=2)
        return rotate(self.key_norm(keys), turns[:, None, None]), values


@dataclass(frozen=True, slots=True, eq=False)
class DflashModel:
    """One drafter's weights."""

    config: DflashConfig
    fc: Tensor
    """[H, K * H]"""
    hidden_norm: RmsNorm
    context: ContextProjection
    layers: tuple[DecoderLayer, ...]
    norm: RmsNorm
    rotary: Rotary

    @property
    def dtype(self) -> torch.dtype:
        """Which it computes with."""
        return self.fc.dtype

    def context_rows(self, taps: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, each [T, L, Hk, D], from taps [T, K * H] of tokens at positions [T]."""
        features = self.hidden_norm(F.linear(taps.to(self.dtype), self.fc))
        return self.context(features, self.rotary.turns(positions, self.dtype))

    def run(self, embedded: Tensor, first_layer: int, forward_pass: ForwardPass, queries: Queries) -> Tensor:
        """The block's rows [T, H], embedded, through all layers and the final norm: [T, H]. Their keys and values
        are written to the pool's layers from `first_layer` on."""
        x = embedded.to(self.dtype) * self.config.input_embedding_scale
        for index, layer in enumerate(self.layers):
            x = layer(x, first_layer + index, forward_pass, queries)
        return self.norm(x)

    def logits(self, hidden: Tensor, output: Tensor) -> Tensor:
        """hidden [T, H] to [T, V], float32 or wider; `output` [V, H] is the target's."""
        logits = linear(hidden.to(output.dtype), output)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) * self.config.output_multiplier
        cap = self.config.final_logit_softcapping
        return logits if cap is None else torch.tanh(logits / cap) * cap


def load_dflash(
    folder: Path, config: DflashConfig, target: Model, *, dtype: torch.dtype | None = None
) -> DflashModel:
    """The drafter in a folder, in `dtype` (None: the target's) and on the target's device.

    Raises UsageError, with its name, for a tensor that is missing, has another shape, or has no place in a DFlash
    drafter.
    """
    checkpoint = FolderCheckpoint(folder, config.layers)
    stored_dtype = STORED_DTYPES.get(config.layers.dtype)
    weights = Weights(checkpoint, dtype or target.embedding.dtype, target.embedding.device, stored_dtype=stored_dtype)
    hidden_size, eps = config.layers.hidden_size, config.layers.rms_norm_eps
    of_layers = [weights.under(f"layers.{index}.") for index in range(config.layers.num_layers)]
    attentions = [llama_attention(config.layers, config.attention, each.under("self_attn.")) for each in of_layers]
    parts = zip(attentions, of_layers, strict=True)
    model = DflashModel(
        config=config,
        fc=weights.take("fc.weight", (hidden_size, len(config.target_layer_ids) * hidden_size)),
        hidden_norm=weights.norm("hidden_norm.weight", hidden_size, eps),
        context=ContextProjection.of(attentions),
        layers=tuple(llama_layer(config.layers, attention, of_layer) for attention, of_layer in parts),
        norm=weights.norm("norm.weight", hidden_size, eps),
        rotary=Rotary.of(config.layers.rope, config.attention.head_dim, weights.device),
    )
    unread = checkpoint.unread_names()
    if unread:
        raise UsageError(
            f"the drafter in {folder} has {len(unread)} tensors that have no place in a DFlash drafter of this "
            f"config, the first is {unread[0]}",
            hint="its config.json doesn't tell of a part that the weights have; drafts would be poor without it",
        )
    return model
