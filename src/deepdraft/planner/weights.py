"""Bytes of a model's weights on one rank: counted in a checkpoint's headers, or from its total and its shape.

Tensor parallelism shares most weights out. Each rank holds whole: the down-projections of latent attention, routers,
norms, an index of sparse attention, compressors of keys, encoders for images, and a DFlash drafter's projection of
its taps. Key and value projections are shared by heads, so from more ranks than KV heads on each holds a whole head.
What an engine makes of weights after loading is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepdraft.cost.config_field import Config, first_whole, quantised_bits, quantization, scale_bits, text_config
from deepdraft.cost.kv_family import Compressed, Grouped, Latent, Recurrent
from deepdraft.errors import UsageError
from deepdraft.planner.safetensors_header import checkpoint_tensors
from deepdraft.planner.shape import Shape, Weights
from deepdraft.planner.v4_layers import v4_layers

_REPLICATED = re.compile(
    r"(q_a_proj|kv_a_proj|fused_qkv_a|compressor|indexer|norm|e_score_correction_bias|mlp\.gate\.|moe\.gate\.|"
    r"router|vision|visual|mm_proj|multi_modal|embed_vision|audio|connector|^fc\.|^model\.fc\.|"
    r"\.wq_a\.|\.wkv\.|\.hc_|^hc_|ffn\.gate\.)"
)
_KV_PROJECTION = re.compile(r"\.(k_proj|v_proj)\.")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


def checkpoint_weights(folder: Path, shape: Shape) -> Weights:
    """Counted in the headers of the folder's safetensors files. Raises UsageError as `checkpoint_tensors` does."""
    replicated = kv_projection = mtp = total = 0
    for name, num_bytes in checkpoint_tensors(folder).items():
        layer = _LAYER.search(name)
        is_encoder = re.search(r"vision|visual|audio", name) is not None
        if name.startswith(("mtp.", "model.mtp.")) or (
            layer and not is_encoder and int(layer[1]) >= shape.num_layers
        ):
            mtp += num_bytes
            continue
        total += num_bytes
        if _REPLICATED.search(name):
            replicated += num_bytes
        elif _KV_PROJECTION.search(name):
            kv_projection += num_bytes
    return Weights(
        total_bytes=total,
        replicated_bytes=replicated,
        kv_projection_bytes=kv_projection,
        num_kv_heads=_num_kv_heads(shape),
        mtp_bytes=mtp,
        is_exact=True,
        source=f"headers of the safetensors files in {folder.name}",
    )


def stated_weights(config: Config, shape: Shape, total_bytes: int, *, mtp_bytes: int = 0, source: str) -> Weights:
    """The total as told; the split by shape. `total_bytes` is without `mtp_bytes`."""
    replicated = _replicated_bytes(config, shape)
    kv_projection = _kv_projection_bytes(config, shape)
    return Weights(
        total_bytes=total_bytes,
        replicated_bytes=min(replicated, total_bytes),
        kv_projection_bytes=min(kv_projection, total_bytes - min(replicated, total_bytes)),
        num_kv_heads=_num_kv_heads(shape),
        mtp_bytes=mtp_bytes,
        is_exact=False,
        source=source,
    )


def estimated_weights(config: Config, shape: Shape) -> Weights:
    """From the shape and the quantisation alone. Raises UsageError for models with recurrent or compressed layers, or
    with layers that differ in width, whose matrices are not known here."""
    inner = text_config(config)
    if inner.get("block_configs") or any(isinstance(each, Recurrent | Compressed) for each in shape.families):
        raise UsageError(
            f"the weights of {shape.name} don't follow from its config alone",
            hint="give the checkpoint's folder, or --weight-bytes",
        )
    plain_bytes = _plain_bytes(shape)
    is_tied = inner.get("tie_word_embeddings", config.get("tie_word_embeddings", False))
    embeddings = shape.vocab_size * shape.hidden * (1 if is_tied else 2) * plain_bytes
    num_shared = first_whole(inner, ("n_shared_experts", "num_shared_experts")) or 0
    experts = shape.num_moe_layers * shape.num_experts * 3 * (shape.moe_hidden or shape.hidden) * shape.expert_mlp
    shared = shape.num_moe_layers * num_shared * 3 * shape.hidden * shape.expert_mlp
    dense = (shape.num_layers - shape.num_moe_layers) * 3 * shape.hidden * shape.dense_mlp
    stated = quantization(config)
    quantised = quantised_bits(stated)
    mlp_bytes = plain_bytes if quantised is None else (quantised + scale_bits(stated)) / 8
    mlp = experts * mlp_bytes + (shared + dense) * (plain_bytes if _is_kept(config, "shared_expert") else mlp_bytes)
    attention = _attention_params(shape) * _attention_bytes(config, shape)
    total = round(attention + embeddings + mlp) + _replicated_bytes(config, shape, projections=False)
    return stated_weights(config, shape, total, source="shapes and quantisation of the config")


def _num_kv_heads(shape: Shape) -> int:
    heads = [each.num_kv_heads for each in shape.families if isinstance(each, Grouped)]
    return min(heads, default=1)


def _attention_params(shape: Shape) -> int:
    """All attention projections of the model."""
    total = 0
    for each in shape.families:
        if isinstance(each, Grouped):
            q_width, o_width = shape.num_qo_heads * each.key_dim, shape.num_qo_heads * each.value_dim
            kv_width = each.num_kv_heads * (each.key_dim + each.value_dim)
            total += each.num_layers * shape.hidden * (q_width + kv_width + o_width)
        elif isinstance(each, Latent):
            nope, value = shape.qk_nope_head_dim or 0, shape.v_head_dim or 0
            q_width = shape.num_qo_heads * (nope + each.qk_rope_head_dim)
            q = shape.q_lora_rank * (shape.hidden + q_width) if shape.q_lora_rank else shape.hidden * q_width
            kv = shape.hidden * (each.kv_lora_rank + each.qk_rope_head_dim)
            kv += each.kv_lora_rank * shape.num_qo_heads * (nope + value)
            total += each.num_layers * (q + kv + shape.num_qo_heads * value * shape.hidden)
    return total


def _replicated_bytes(config: Config, shape: Shape, *, projections: bool = True) -> int:
    """Down-projections of latent attention (unless left out), routers, and an image encoder."""
    total = 0.0
    for each in shape.families if projections else ():
        if isinstance(each, Latent):
            width = (shape.q_lora_rank or 0) + each.kv_lora_rank + each.qk_rope_head_dim
            total += each.num_layers * shape.hidden * width * _attention_bytes(config, shape)
    total += _v4_replicated_bytes(config, shape)
    total += shape.num_moe_layers * shape.num_experts * (shape.moe_hidden or shape.hidden) * _plain_bytes(shape)
    vision = config.get("vision_config")
    if isinstance(vision, Mapping):
        total += _plain_bytes(shape) * _vision_params(vision, shape.hidden)
    return round(total)


def _v4_replicated_bytes(config: Config, shape: Shape) -> float:
    """DeepSeek-V4: projections to queries' rank and to rows, compressors and indices, and the float32 matrices that
    mix residual streams (compressor.py and deepseek_v4.py of SGLang 0.5.23)."""
    layers = v4_layers(shape.families)
    if layers is None:
        return 0.0
    hidden, rank, plain = shape.hidden, shape.q_lora_rank or 0, _plain_bytes(shape)
    heads = first_whole(text_config(config), ("index_n_heads",)) or 0
    quantised = layers.num_layers * hidden * (rank + layers.dim) + layers.num_4 * rank * heads * layers.index_dim
    states = layers.num_4 * (layers.state_dim(4) + layers.index_state_dim) + layers.num_128 * layers.state_dim(128)
    streams = 2 * layers.num_layers * (2 + shape.num_streams) * shape.num_streams**2 * hidden * 4
    return quantised * _attention_bytes(config, shape) + hidden * (states + layers.num_4 * heads) * plain + streams


def _kv_projection_bytes(config: Config, shape: Shape) -> int:
    return sum(
        round(
            each.num_layers
            * shape.hidden
            * each.num_kv_heads
            * (each.key_dim + each.value_dim)
            * _attention_bytes(config, shape)
        )
        for each in shape.families
        if isinstance(each, Grouped)
    )


def _vision_params(vision: Mapping[str, Any], text_hidden: int) -> int:
    """Of a plain vision transformer and the projection of its merged patches."""
    layers = first_whole(vision, ("num_hidden_layers", "vt_num_hidden_layers", "depth")) or 0
    hidden = first_whole(vision, ("hidden_size", "vt_hidden_size")) or 0
    mlp = first_whole(vision, ("intermediate_size", "vt_intermediate_size")) or 4 * hidden
    merged = 4 * hidden
    return layers * (4 * hidden**2 + 2 * hidden * mlp) + merged * (merged + text_hidden)


def _attention_bytes(config: Config, shape: Shape) -> float:
    """Bytes of a stored weight of an attention projection."""
    bits = quantised_bits(quantization(config))
    return _plain_bytes(shape) if bits is None or _is_kept(config, "attn") else bits / 8


def _plain_bytes(shape: Shape) -> float:
    """Bytes of a weight that is not quantised."""
    return 4.0 if shape.dtype == "float32" else 2.0


def _is_kept(config: Config, part: str) -> bool:
    """Whether the quantisation leaves that part of the model as it is."""
    stated = quantization(config)
    kept = stated.get("ignore") or stated.get("modules_to_not_convert") or ()
    return any(part in str(each) for each in kept)
