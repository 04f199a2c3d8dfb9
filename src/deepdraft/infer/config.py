"""The shape of a model: what the layers and the pool need to know, whatever file it came from.

Reading config.json or GGUF metadata into it is `checkpoint`'s work. Names are Hugging Face's own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaShape:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). The cache holds, per token and layer, one row of
    kv_lora_rank + qk_rope_head_dim numbers, shared by all heads."""

    num_qo_heads: int
    q_lora_rank: int | None
    """None: one query projection without a low-rank step."""
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GqaShape:
    """Grouped-query attention; num_kv_heads equal to num_qo_heads is plain multi-head attention."""

    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    has_qk_norm: bool
    """RMSNorm over head_dim of each query and key head, before the rotary embedding (Qwen3)."""
    has_bias: bool
    """Bias on the query, key, value (and output, for llama) projections: config.json's attention_bias."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeShape:
    """Mixture of experts with a sigmoid router and a selection bias (DeepSeek-V3, arXiv 2412.19437, 2.1.2)."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    num_shared_experts: int
    num_groups: int
    num_groups_per_tok: int
    norm_topk_prob: bool
    routed_scaling_factor: float
    num_dense_layers: int
    """The first layers that have a plain MLP instead (first_k_dense_replace)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeShape:
    """Rotary position embedding. `kind` is default, linear, llama3 or yarn; a field not used by the kind is None."""

    theta: float
    kind: str = "default"
    factor: float | None = None
    original_max_position_embeddings: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    is_truncated: bool = True
    """YaRN's correction range rounded to whole dimensions (config.json's `truncate`)."""
    is_interleaved: bool = False
    """Pairs (0,1), (2,3) ... rotate together in the checkpoint's layout, instead of (0, d/2), (1, d/2+1) ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One model. `model_type` is deepseek_v3, llama or qwen3."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    rms_norm_eps: float
    attention: MlaShape | GqaShape
    moe: MoeShape | None
    rope: RopeShape
    max_context_len: int
    """Positions the model is made for (max_position_embeddings)."""
    has_tied_embeddings: bool
    dtype: str
    """Of the stored weights: float32, bfloat16, float16, or what a GGUF file's blocks are called (Q4_1 ...)."""
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
