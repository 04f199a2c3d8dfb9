"""What SGLang chooses and refuses for DeepSeek-V4, whatever the flags say.

Pages of 256 tokens, 256 running requests unless told, a windows' pool of 0.1, rows in packed fp8, and its own
prediction layer as the only drafter known here. Sources: arg_groups/deepseek_v4_hook.py of 0.5.12.post1 and 0.5.23,
arg_groups/model_overrides/deepseek_v4.py and overrides.py (`_deepseek_v4_kv_cache_dtype`) of 0.5.23.
"""

from __future__ import annotations

from deepdraft.errors import UsageError
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_fraction import Version
from deepdraft.planner.sglang_v4 import DEFAULT_MAX_RUNNING, DEFAULT_WINDOW_RATIO, V4Form
from deepdraft.planner.shape import Model
from deepdraft.planner.v4_layers import V4Layers, v4_layers

_ALGORITHMS = ("EAGLE", "NEXTN")


def v4_form(version: Version, model: Model, settings: SglangSettings, num_draft_tokens: int) -> V4Form | None:
    """How its pools are laid out; None for every other model. `num_draft_tokens`: 1 without speculation.

    Raises UsageError for flags that the engine refuses with this model, and for a drafter not known here.
    """
    layers = v4_layers(model.shape.families)
    if layers is None:
        return None
    _check(version, model, settings)
    form = V4Form(
        layers=_stage(layers, settings.pp_size),
        window_ratio=settings.swa_full_tokens_ratio or DEFAULT_WINDOW_RATIO,
        num_requests=_num_requests(settings),
        num_draft_tokens=num_draft_tokens if settings.speculative_algorithm else 0,
        has_uniform_rows=settings.dsv4_attn_backend == "trtllm",
        is_unified=settings.dsv4_unified_kv,
        is_unified_fp8=settings.dsv4_unified_kv_fp8,
    )
    if form.num_draft_tokens > form.most_draft_tokens:
        raise UsageError(
            f"--speculative-num-draft-tokens {form.num_draft_tokens} is more than DeepSeek-V4's compressors hold",
            hint=f"at most {form.most_draft_tokens}",
        )
    return form


def _check(version: Version, model: Model, settings: SglangSettings) -> None:
    algorithm = (settings.speculative_algorithm or "").upper()
    if algorithm and algorithm not in _ALGORITHMS:
        raise UsageError(
            f"--speculative-algorithm {algorithm} with DeepSeek-V4 is not known here", hint="EAGLE with --drafter mtp"
        )
    if algorithm and model.drafter is not None and model.drafter.kind != "mtp":
        raise UsageError("SGLang drafts for DeepSeek-V4 with its own prediction layer", hint="--drafter mtp")
    is_ignored = version == "0.5.23" and settings.dsv4_unified_kv and settings.kv_cache_dtype == "bfloat16"
    if settings.kv_cache_dtype not in ("auto", "fp8_e4m3") and not is_ignored:
        raise UsageError(
            f"--kv-cache-dtype {settings.kv_cache_dtype} is not supported for DeepSeek-V4: its rows are packed fp8",
            hint="leave it out",
        )
    if settings.dsv4_attn_backend not in ("auto", "flashmla", "trtllm"):
        raise UsageError(
            f"--dsv4-attn-backend {settings.dsv4_attn_backend} with DeepSeek-V4 is not known here",
            hint="auto, flashmla or trtllm",
        )
    if version == "0.5.12" and (settings.dsv4_attn_backend == "trtllm" or settings.dsv4_unified_kv):
        raise UsageError("SGLang 0.5.12 knows one layout of DeepSeek-V4's rows", hint="--engine-version 0.5.23")
    if settings.dsv4_unified_kv and settings.dsv4_attn_backend == "trtllm":
        raise UsageError("unified KV is for AMD, and --dsv4-attn-backend trtllm for NVIDIA's SM100")


def _stage(layers: V4Layers, pp_size: int) -> V4Layers:
    """The fullest pipeline stage, layers shared out evenly."""
    return V4Layers(
        num_layers=-(-layers.num_layers // pp_size),
        num_4=-(-layers.num_4 // pp_size),
        num_128=-(-layers.num_128 // pp_size),
        dim=layers.dim,
        rope_dim=layers.rope_dim,
        index_dim=layers.index_dim,
        window=layers.window,
    )


def _num_requests(settings: SglangSettings) -> int:
    """Of one rank of data-parallel attention."""
    num_ranks = settings.dp_size if settings.enable_dp_attention else 1
    return max((settings.max_running_requests or DEFAULT_MAX_RUNNING) // num_ranks, 1)
