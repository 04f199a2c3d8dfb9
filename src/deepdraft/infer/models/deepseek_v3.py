"""Models of the DeepSeek-V3 form (Kimi K2.x): latent attention and mixture of experts, by HF's weight names.

Shape letters as in `layers.mla` and `layers.experts`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from deepdraft.infer.config import MlaShape, ModelConfig, MoeShape
from deepdraft.infer.errors import UnsupportedModel
from deepdraft.infer.kernels.expanded import TORCH_PRICE, ExpansionPrice, fewest_expanded_queries
from deepdraft.infer.layers.experts import Moe, Router
from deepdraft.infer.layers.mla import LatentAttention, LowRankQueries
from deepdraft.infer.layers.mlp import Mlp
from deepdraft.infer.layers.rope import adjacent_pairs, softmax_factor
from deepdraft.infer.models.decoder import Decoder, DecoderLayer
from deepdraft.infer.models.stack import decoder, mlp
from deepdraft.infer.models.weights import Weights

_LOW_RANK_EPS = 1e-6
"""Of the norms inside latent attention: DeepSeek's code leaves them at its default whatever rms_norm_eps says."""


def deepseek_v3(
    config: ModelConfig, shape: MlaShape, weights: Weights, *, price: ExpansionPrice = TORCH_PRICE
) -> Decoder:
    """The model with its weights; `price` is that of the back end it will run with.

    Raises UsageError where a tensor is missing or has another shape, and UnsupportedModel for an odd width: a rotary
    pair must start at an even place.
    """
    for field in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"):
        width = getattr(shape, field)
        if width is not None and width % 2:
            raise UnsupportedModel(field, width, reason="it must be even")

    def layer(index: int, of_layer: Weights) -> DecoderLayer:
        return DecoderLayer(
            attention_norm=of_layer.norm("input_layernorm.weight", config.hidden_size, config.rms_norm_eps),
            attention=_attention(config, shape, of_layer.under("self_attn.")),
            feed_forward_norm=of_layer.norm(
                "post_attention_layernorm.weight", config.hidden_size, config.rms_norm_eps
            ),
            feed_forward=_feed_forward(config, index, of_layer.under("mlp.")),
        )

    return decoder(
        config,
        weights,
        layer,
        rotary_dim=shape.qk_rope_head_dim,
        many_queries=fewest_expanded_queries(
            latent_dim=shape.kv_lora_rank, plain_dim=shape.qk_nope_head_dim, value_dim=shape.v_head_dim, price=price
        ),
    )


def _attention(config: ModelConfig, shape: MlaShape, weights: Weights) -> LatentAttention:
    hidden_size, latent_dim, num_heads = config.hidden_size, shape.kv_lora_rank, shape.num_qo_heads
    head_dim = shape.qk_nope_head_dim + shape.qk_rope_head_dim
    query_order = _rotary_last(config, num_heads, shape.qk_nope_head_dim, shape.qk_rope_head_dim)
    key_part = (
        "kv_a_proj_with_mqa.weight",
        latent_dim + shape.qk_rope_head_dim,
        _rotary_last(config, 1, latent_dim, shape.qk_rope_head_dim),
    )
    if shape.q_lora_rank is None:
        low_rank_queries = None
        query_part = ("q_proj.weight", num_heads * head_dim, query_order)
    else:
        low_rank_queries = LowRankQueries(
            weights.norm("q_a_layernorm.weight", shape.q_lora_rank, _LOW_RANK_EPS),
            weights.joined([("q_b_proj.weight", num_heads * head_dim, query_order)], shape.q_lora_rank),
        )
        query_part = ("q_a_proj.weight", shape.q_lora_rank, None)
    up_dim = shape.qk_nope_head_dim + shape.v_head_dim
    up = weights.take("kv_b_proj.weight", (num_heads * up_dim, latent_dim)).view(num_heads, up_dim, latent_dim)
    return LatentAttention(
        shape=shape,
        down=weights.joined([query_part, key_part], hidden_size),
        low_rank_queries=low_rank_queries,
        latent_norm=weights.norm("kv_a_layernorm.weight", latent_dim, _LOW_RANK_EPS),
        key_up=up[:, : shape.qk_nope_head_dim],
        value_up=up[:, shape.qk_nope_head_dim :],
        out=weights.take("o_proj.weight", (hidden_size, num_heads * shape.v_head_dim)),
        scale=head_dim**-0.5 * softmax_factor(config.rope),
    )


def _rotary_last(config: ModelConfig, num_heads: int, plain_dim: int, rotary_dim: int) -> Tensor | None:
    """The order of heads' rows that has each one's rotary pairs, which stand last, side by side; None where they are
    so in the checkpoint (DeepSeek's own layout)."""
    if config.rope.is_interleaved:
        return None
    within = torch.cat((torch.arange(plain_dim), plain_dim + adjacent_pairs(rotary_dim)))
    return (torch.arange(num_heads)[:, None] * (plain_dim + rotary_dim) + within).flatten()


def _feed_forward(config: ModelConfig, layer_index: int, weights: Weights) -> Mlp | Moe:
    if config.moe is None or layer_index < config.moe.num_dense_layers:
        return mlp(weights, config.hidden_size, config.intermediate_size)
    return _moe(config.moe, config.hidden_size, weights)


def _moe(shape: MoeShape, hidden_size: int, weights: Weights) -> Moe:
    width = shape.moe_intermediate_size
    dtype = torch.promote_types(
        weights.dtype, torch.float32
    )  # the choice of experts must not hang on bfloat16's steps
    router = Router(
        shape,
        weights.take("gate.weight", (shape.num_experts, hidden_size), dtype=dtype),
        weights.take("gate.e_score_correction_bias", (shape.num_experts,), dtype=dtype),
    )
    shared = None
    if shape.num_shared_experts:
        shared = mlp(weights.under("shared_experts."), hidden_size, width * shape.num_shared_experts)
    experts = tuple(mlp(weights.under(f"experts.{index}."), hidden_size, width) for index in range(shape.num_experts))
    return Moe(router, experts, shared)
