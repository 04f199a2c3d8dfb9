"""Models of the Llama form, Llama and Qwen3: grouped-query attention and SwiGLU, by Hugging Face's weight names."""

from __future__ import annotations

import torch
from torch import Tensor

from deepdraft.infer.config import GqaShape, ModelConfig
from deepdraft.infer.layers.gqa import GroupedQueryAttention
from deepdraft.infer.layers.norm import RmsNorm
from deepdraft.infer.layers.rope import adjacent_pairs
from deepdraft.infer.models.decoder import Decoder, DecoderLayer
from deepdraft.infer.models.stack import decoder, mlp
from deepdraft.infer.models.weights import Weights


def llama(config: ModelConfig, shape: GqaShape, weights: Weights) -> Decoder:
    """The model with its weights. Raises UsageError where a tensor is missing or has another shape."""

    def layer(_index: int, of_layer: Weights) -> DecoderLayer:
        attention = llama_attention(config, shape, of_layer.under("self_attn."))
        return llama_layer(config, attention, of_layer)

    return decoder(config, weights, layer, rotary_dim=shape.head_dim, many_queries=None)


def llama_layer(config: ModelConfig, attention: GroupedQueryAttention, weights: Weights) -> DecoderLayer:
    """One layer around its attention, from the weights under its prefix."""
    return DecoderLayer(
        attention_norm=weights.norm("input_layernorm.weight", config.hidden_size, config.rms_norm_eps),
        attention=attention,
        feed_forward_norm=weights.norm("post_attention_layernorm.weight", config.hidden_size, config.rms_norm_eps),
        feed_forward=mlp(weights.under("mlp."), config.hidden_size, config.intermediate_size),
    )


def llama_attention(config: ModelConfig, shape: GqaShape, weights: Weights) -> GroupedQueryAttention:
    """One layer's attention, from the weights under its prefix; rotary pairs are put side by side."""
    num_rows, num_kv_rows = shape.num_qo_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    order, kv_order = _row_order(config, shape, shape.num_qo_heads), _row_order(config, shape, shape.num_kv_heads)
    parts = [("q_proj", num_rows, order), ("k_proj", num_kv_rows, kv_order), ("v_proj", num_kv_rows, None)]
    qkv = weights.joined([(f"{name}.weight", rows, of_rows) for name, rows, of_rows in parts], config.hidden_size)
    qkv_bias = out_bias = None
    if shape.has_bias:
        qkv_bias = torch.cat([_ordered(weights.take(f"{name}.bias", (rows,)), at) for name, rows, at in parts])
        out_bias = weights.take("o_proj.bias", (config.hidden_size,))
    return GroupedQueryAttention(
        shape=shape,
        qkv=qkv,
        qkv_bias=qkv_bias,
        qk_norm=_qk_norm(config, shape, weights) if shape.has_qk_norm else None,
        out=weights.take("o_proj.weight", (config.hidden_size, num_rows)),
        out_bias=out_bias,
    )


def _qk_norm(config: ModelConfig, shape: GqaShape, weights: Weights) -> RmsNorm:
    """Query and key norm as one, with a weight for each head."""
    dtype = torch.promote_types(weights.dtype, torch.float32)
    heads = [("q_norm.weight", shape.num_qo_heads), ("k_norm.weight", shape.num_kv_heads)]
    order = _row_order(config, shape, 1)
    rows = [
        _ordered(weights.take(name, (shape.head_dim,), dtype=dtype), order).expand(num_heads, -1)
        for name, num_heads in heads
    ]
    return RmsNorm.of(torch.cat(rows), config.rms_norm_eps)


def _row_order(config: ModelConfig, shape: GqaShape, num_heads: int) -> Tensor | None:
    """The order of the heads' rows that has rotary pairs side by side; None where they are so in the checkpoint."""
    if config.rope.is_interleaved:
        return None
    heads = torch.arange(num_heads)[:, None] * shape.head_dim
    return (heads + adjacent_pairs(shape.head_dim)).flatten()


def _ordered(rows: Tensor, order: Tensor | None) -> Tensor:
    return rows if order is None else rows[order.to(rows.device)]
