"""Launch settings that decide memory, one class per engine, each field as the engine spells its flag.

None is the engine's own choice, which the engine's function works out and tells in the plan's `settings`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangSettings:
    """Flags of `python -m sglang.launch_server`, 0.5.12 to 0.5.23."""

    mem_fraction_static: float | None = None
    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1
    enable_dp_attention: bool = False
    """With it attention runs on tp_size / dp_size ranks."""
    dcp_size: int = 1
    """Ranks that share a sequence's tokens in decode (decode context parallelism)."""
    context_length: int | None = None
    chunked_prefill_size: int | None = None
    max_prefill_tokens: int = 16384
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    page_size: int = 1
    kv_cache_dtype: str = "auto"
    attention_backend: str | None = None
    cuda_graph_max_bs: int | None = None
    disable_cuda_graph: bool = False
    moe_a2a_backend: str = "none"
    """How experts on other ranks are reached; deepep has buffers of its own."""
    speculative_algorithm: str | None = None
    """DFLASH, EAGLE, EAGLE3, NEXTN, STANDALONE; None: no drafter, even where the model has one beside it."""
    speculative_num_draft_tokens: int | None = None
    """Tokens of a request in one verify step."""
    swa_full_tokens_ratio: float | None = None
    disable_radix_cache: bool = False
    mamba_full_memory_ratio: float = 0.9
    expandable_segments: bool = False
    """PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, an environment variable."""
    post_capture_kv_sizing: bool = False
    """SGLANG_ENABLE_POST_CAPTURE_KV_SIZING=1, an environment variable of 0.5.23, off unless set."""
    dsv4_attn_backend: str = "auto"
    """DeepSeek-V4's rows: flashmla, which auto is, or trtllm (SM100)."""
    dsv4_unified_kv: bool = False
    """SGLANG_HACK_FLASHMLA_BACKEND=unified_kv_triton, an environment variable: DeepSeek-V4 on AMD."""
    dsv4_unified_kv_fp8: bool = False
    """SGLANG_DSV4_UNIFIED_KV_FP8=1, an environment variable beside it, for gfx95."""

    @property
    def is_chunked(self) -> bool:
        """Whether long prompts are prefilled in chunks."""
        return self.chunked_prefill_size is None or self.chunked_prefill_size > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """Flags of `vllm serve`, 0.20 to 0.33."""

    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    """Bytes of the pool itself, instead of the fraction."""
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    """Ranks that share a sequence's tokens in decode."""
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    kv_cache_dtype: str = "auto"
    enforce_eager: bool = False
    num_speculative_tokens: int | None = None
    """None: no drafter, even where the model has one beside it."""
    expandable_segments: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamacppSettings:
    """Flags of `llama-server`, October 2026."""

    ctx_size: int | None = None
    """-c; None or 0: the model's own limit."""
    parallel: int | None = None
    """-np; None: its own choice, 4 slots over one pool."""
    kv_unified: bool | None = None
    """None: on where `parallel` is its own choice."""
    batch_size: int = 2048
    ubatch_size: int = 512
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: bool | None = None
    """None: auto."""
    swa_full: bool = False
    n_gpu_layers: int | None = None
    """None: all of them, where there is a device."""
    num_devices: int = 1
    """Devices that share the layers (--split-mode layer)."""
    cache_ram_mib: int = 8192
    """--cache-ram: prompts kept in host memory."""


EngineSettings = SglangSettings | VllmSettings | LlamacppSettings
