"""What an SGLang server tells of itself: model info, server info and metrics, in the shapes of 0.5.23."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepdraft.simulate.prometheus import Family, Sample, exposition, family

if TYPE_CHECKING:
    from deepdraft.simulate.dialects.sglang import SglangDialect

VERSION = "0.5.23"
_BYTES_PER_TOKEN = 70_272
"""Only so that the memory figures are plausible: 61 layers of 576 two-byte values."""


def model_facts(dialect: SglangDialect) -> dict[str, Any]:
    """GET /model_info."""
    model = dialect.surface.model
    return {
        "model_path": f"/models/{model}",
        "served_model_name": model,
        "tokenizer_path": f"/models/{model}",
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": "auto",
        "reasoning_parser": None,
        "tool_call_parser": None,
        "disaggregation_mode": "null",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
    }


def server_facts(dialect: SglangDialect) -> dict[str, Any]:
    """GET /server_info: arguments at top level, pool sizes, one internal state."""
    physics, surface, engine = dialect.physics, dialect.surface, dialect.engine
    model_path = f"/models/{surface.model}"
    draft_len = physics.max_committed_len - 1
    is_speculative = physics.is_speculative
    state: dict[str, Any] = {
        "last_gen_throughput": _throughput(dialect),
        "effective_max_running_requests_per_dp": physics.max_running,
        "memory_usage": {
            "weight": 0.079,
            "kvcache": round(physics.kv_pool_tokens * _BYTES_PER_TOKEN / 1e9, 3),
            "startup_available": 4.2,
            "token_capacity": physics.kv_pool_tokens,
            "graph": {},
        },
    }
    if engine.spec_figures.shown_accept_len is not None:
        state["avg_spec_accept_length"] = engine.spec_figures.shown_accept_len
    return {
        "model_path": model_path,
        "tokenizer_path": model_path,
        "tokenizer_mode": "auto",
        "context_length": physics.max_context_len,
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
        "mem_fraction_static": 0.93,
        "max_running_requests": physics.max_running,
        "max_total_tokens": None,
        "chunked_prefill_size": 4096,
        "max_prefill_tokens": 16384,
        "schedule_policy": "fcfs",
        "page_size": physics.page_size,
        "disable_radix_cache": not dialect.confounds.prefix_cache,
        "tp_size": 1,
        "dp_size": 1,
        "device": "cpu",
        "host": dialect.spec.host,
        "api_key": None,
        "served_model_name": surface.model,
        "enable_cache_report": dialect.shows_cached_in_usage(),
        "allow_auto_truncate": dialect.confounds.truncate_prompt_to is not None,
        "stream_interval": dialect.confounds.stream_interval,
        "enable_metrics": surface.metrics,
        "decode_log_interval": surface.decode_log_interval,
        "attention_backend": "torch_native",
        "speculative_algorithm": "EAGLE" if is_speculative else None,
        "speculative_draft_model_path": "/models/draft" if is_speculative else None,
        "speculative_num_steps": draft_len if is_speculative else None,
        "speculative_eagle_topk": 1 if is_speculative else None,
        "speculative_num_draft_tokens": draft_len + 1 if is_speculative else None,
        "launch_command": f"python -m sglang.launch_server --model-path {model_path}",
        "max_total_num_tokens": physics.kv_pool_tokens,
        "max_req_input_len": dialect.max_input_len,
        "internal_states": [state],
        "version": VERSION,
    }


def metrics_text(dialect: SglangDialect) -> str:
    """GET /metrics."""
    engine, physics = dialect.engine, dialect.physics
    counters, figures = engine.counters, engine.spec_figures
    plain = {"engine_type": "unified", "model_name": dialect.surface.model}
    streamed = {**plain, "is_streaming": "true"}
    ranked = {**plain, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}

    def counter(name: str, help_text: str, value: float, labels: dict[str, str]) -> Family:
        return family(f"sglang:{name}", help_text, "counter", value, labels)

    def gauge(name: str, help_text: str, value: float) -> Family:
        return family(f"sglang:{name}", help_text, "gauge", value, ranked)

    generated = counters.generation_tokens + engine.background_tokens
    families = [
        counter("prompt_tokens_total", "Number of prefill tokens processed.", counters.prompt_tokens, streamed),
        counter("generation_tokens_total", "Number of generation tokens processed.", generated, streamed),
        counter("num_requests_total", "Number of requests processed.", counters.num_requests, streamed),
        gauge("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", physics.kv_pool_tokens),
        gauge("page_size", "KV cache page size in tokens.", physics.page_size),
        gauge("context_len", "Maximum context length.", physics.max_context_len),
        gauge("num_running_reqs", "The number of running requests.", engine.num_running),
        gauge("num_queue_reqs", "The number of requests in the waiting queue.", engine.num_waiting),
        gauge("gen_throughput", "The generation throughput (token/s).", _throughput(dialect)),
        gauge("token_usage", "The token usage.", engine.used_tokens / physics.kv_pool_tokens),
        gauge("kv_used_tokens", "Used KV tokens.", engine.used_tokens),
        gauge(
            "spec_accept_length",
            "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).",
            figures.shown_accept_len or 0.0,
        ),
        gauge(
            "spec_accept_rate",
            "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch).",
            figures.shown_accept_rate or 0.0,
        ),
    ]
    if dialect.shows_cached_in_counters():
        cached = dialect.shown_cached(counters.cached_tokens)
        help_text = "Number of cached prompt tokens by source (device/host/storage)."
        # The line appears with the first hit, as a labelled counter does.
        samples = (Sample(cached, {**plain, "cache_source": "device"}),) if cached else ()
        families.append(Family("sglang:cached_tokens_total", help_text, "counter", samples))
        computed = counters.prompt_tokens - cached
        by_mode = {"prefill_compute": computed, "prefill_cache": cached, "decode": generated}
        families.append(
            Family(
                "sglang:realtime_tokens_total",
                "Total number of tokens processed, by mode.",
                "counter",
                tuple(Sample(value, {**ranked, "mode": mode}) for mode, value in by_mode.items()),
            )
        )
    if physics.is_speculative:
        families.append(
            counter(
                "spec_verify_calls_total",
                "Number of verify calls.",
                counters.num_decode_steps,
                ranked,
            )
        )
    return exposition(families)


def _throughput(dialect: SglangDialect) -> float:
    counters = dialect.engine.counters
    return counters.generation_tokens / counters.decode_time_s if counters.decode_time_s else 0.0
