"""A model's shape as memory sees it, and a drafter's. What a config.json turns into; reading one is `shape_config`'s.

Counts are of the whole model, before any parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deepdraft.cost.kv_family import Family

DrafterKind = Literal["dflash", "eagle", "eagle3", "mtp", "standalone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One model. None: not said, or the model has no such part."""

    name: str
    model_type: str
    families: tuple[Family, ...]
    """Its KV cache and states by groups of layers (cost.kv_family)."""
    num_layers: int
    hidden: int
    num_qo_heads: int
    vocab_size: int
    max_context_len: int | None
    dtype: str
    """Of activations, and of the cache unless told otherwise: bfloat16, float16, float32."""
    state_dtype: str = "float32"
    """Of recurrent states."""
    kv_cache_dtype: str | None = None
    """What the checkpoint asks for: a quantised cache (kv_cache_scheme, kv_cache_quant_algo)."""
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    """Of latent attention in its expanded form; of others the width of a value."""
    q_lora_rank: int | None = None
    num_experts: int = 0
    num_experts_per_token: int = 0
    num_moe_layers: int = 0
    expert_mlp: int = 0
    """Width of one routed expert."""
    moe_hidden: int | None = None
    """Width that routed experts read and write, where it is not `hidden` (Kimi K3, Nemotron 3)."""
    dense_mlp: int = 0
    num_streams: int = 1
    """Residual streams side by side (hyper-connections, hc_mult)."""
    index_topk: int = 0
    """Rows that sparse attention reads for a token; 0 without an index."""
    num_mtp_layers: int = 0
    """Layers for multi-token prediction that come with the checkpoint; their cache is not in `families`."""
    is_multimodal: bool = False
    """Whether the checkpoint holds an encoder for images, sound or video."""
    vision_complexity: float = 1.0
    """Layers x hidden^2 of the image encoder over those of ViT-L/14 (24 x 1024^2), as SGLang reads its config."""

    @property
    def is_latent(self) -> bool:
        """Whether its attention keeps latent rows."""
        return self.kv_lora_rank is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Bytes of a checkpoint as stored, by whether ranks share them out or each hold them."""

    total_bytes: int
    """Without `mtp_bytes`."""
    replicated_bytes: int = 0
    """Of the total, what every tensor-parallel rank holds whole."""
    kv_projection_bytes: int = 0
    """Of the total, key and value projections: shared out by KV heads, at least one on each rank."""
    num_kv_heads: int = 1
    mtp_bytes: int = 0
    """Layers for multi-token prediction, loaded only where they draft."""
    is_exact: bool
    """Whether the split was counted in the checkpoint's own headers; else it follows from shapes."""
    source: str

    def rank_bytes(self, tp_size: int = 1, pp_size: int = 1) -> int:
        """Bytes of one rank, layers spread evenly over pipeline stages."""
        shared = self.total_bytes - self.replicated_bytes - self.kv_projection_bytes
        kv_bytes = -(-self.kv_projection_bytes // min(tp_size, self.num_kv_heads))
        return -(-(self.replicated_bytes + kv_bytes + -(-shared // tp_size)) // pp_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """The model that drafts: a checkpoint of its own, or the target's multi-token prediction layers."""

    kind: DrafterKind
    shape: Shape
    weights: Weights
    block_size: int | None = None
    """Tokens of one block, its first one included (DFlash); None: drafts of any length."""
    num_taps: int = 0
    """Hidden states of the target that it reads for every token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a plan is made for."""

    shape: Shape
    weights: Weights
    drafter: Drafter | None = None
