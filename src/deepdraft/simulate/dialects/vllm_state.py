"""What a vLLM server tells of itself: metrics and server info, in the shapes of 0.32.0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from deepdraft.simulate.prometheus import Family, Sample, exposition

if TYPE_CHECKING:
    from deepdraft.simulate.dialects.vllm import VllmDialect

VERSION = "0.32.0"


def metrics_text(dialect: VllmDialect) -> str:
    """GET /metrics."""
    engine, physics = dialect.engine, dialect.physics
    counters = engine.counters
    plain = {"engine": "0", "model_name": dialect.surface.model}
    families: list[Family] = []

    def add(
        name: str,
        help_text: str,
        *samples: tuple[float, dict[str, str]],
        kind: Literal["counter", "gauge"] = "counter",
    ) -> None:
        labelled = tuple(Sample(value, {**plain, **labels}) for value, labels in samples)
        families.append(Family(f"vllm:{name}", help_text, kind, labelled))
        if kind == "counter":
            created = tuple(Sample(engine.started_at_s, sample.labels) for sample in labelled)
            families.append(Family(f"vllm:{name.removesuffix('_total')}_created", help_text, "gauge", created))

    if physics.is_speculative:
        add("spec_decode_num_drafts_total", "Number of spec decoding drafts.", (counters.num_verify_steps, {}))
        add("spec_decode_num_draft_tokens_total", "Number of draft tokens.", (counters.draft_tokens, {}))
        add("spec_decode_num_accepted_tokens_total", "Number of accepted tokens.", (counters.accepted_tokens, {}))
        add(
            "spec_decode_num_accepted_tokens_per_pos_total",
            "Accepted tokens per draft position.",
            *((value, {"position": str(depth)}) for depth, value in enumerate(counters.accepted_by_position)),
        )
    running_help = "Number of requests in model execution batches."
    add("num_requests_running", running_help, (engine.num_running, {}), kind="gauge")
    add(
        "num_requests_waiting",
        "Number of requests waiting to be processed.",
        (engine.num_waiting, {}),
        kind="gauge",
    )
    usage_help = "KV-cache usage. 1 means 100 percent usage."
    add("kv_cache_usage_perc", usage_help, (engine.used_tokens / physics.kv_pool_tokens, {}), kind="gauge")
    cached = dialect.shown_cached(counters.cached_tokens)
    if dialect.shows_cached_in_counters():
        queries_help = "Prefix cache queries, in terms of number of queried tokens."
        queries = counters.prompt_tokens if dialect.confounds.prefix_cache else 0
        add("prefix_cache_queries_total", queries_help, (queries, {}))
        hits_help = "Prefix cache hits, in terms of number of cached tokens."
        add("prefix_cache_hits_total", hits_help, (cached, {}))
        add("prompt_tokens_cached_total", "Number of cached prompt tokens (local + external).", (cached, {}))
        add(
            "prompt_tokens_by_source_total",
            "Number of prompt tokens by source.",
            (counters.prompt_tokens - cached, {"source": "local_compute"}),
            (cached, {"source": "local_cache_hit"}),
            (0, {"source": "external_kv_transfer"}),
        )
    add("num_preemptions_total", "Cumulative number of preemption from the engine.", (0, {}))
    add("prompt_tokens_total", "Number of prefill tokens processed.", (counters.prompt_tokens, {}))
    generated = counters.generation_tokens + engine.background_tokens
    add("generation_tokens_total", "Number of generation tokens processed.", (generated, {}))
    add(
        "request_success_total",
        "Count of successfully processed requests.",
        (0, {"finished_reason": "stop"}),
        (counters.num_requests, {"finished_reason": "length"}),
    )
    families.append(
        Family(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            "gauge",
            (Sample(1, _cache_labels(dialect)),),
        )
    )
    return exposition(families)


def _cache_labels(dialect: VllmDialect) -> dict[str, str]:
    physics = dialect.physics
    return {
        "block_size": str(physics.page_size),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(dialect.confounds.prefix_cache),
        "engine": "0",
        "gpu_memory_utilization": "0.92",
        "is_attention_free": "False",
        "kv_cache_max_concurrency": str(physics.kv_pool_tokens / physics.max_context_len),
        "kv_cache_size_tokens": str(physics.kv_pool_tokens),
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(physics.kv_pool_tokens // physics.page_size),
        "num_gpu_blocks_override": "None",
        "prefix_caching_hash_algo": "sha256",
        "sliding_window": "None",
    }


def server_facts(dialect: VllmDialect, *, as_json: bool) -> dict[str, Any]:
    """GET /server_info."""
    physics, model = dialect.physics, dialect.surface.model
    draft_len = physics.max_committed_len - 1
    environment = {"VLLM_SERVER_DEV_MODE": True}
    if as_json:
        speculation = {"method": "ngram", "num_speculative_tokens": draft_len}
        config = {
            "model_config": {"model": f"/models/{model}", "max_model_len": physics.max_context_len},
            "cache_config": _cache_labels(dialect),
            "scheduler_config": {"max_num_seqs": physics.max_running},
            "speculative_config": speculation if physics.is_speculative else None,
        }
        return {"vllm_config": config, "vllm_env": environment}
    speculative = "None"
    if physics.is_speculative:
        speculative = f"SpeculativeConfig(method='ngram', model=None, num_spec_tokens={draft_len})"
    text = (
        f"model='/models/{model}', speculative_config={speculative}, tokenizer='/models/{model}', "
        f"dtype=torch.bfloat16, max_seq_len={physics.max_context_len}, kv_cache_dtype=auto, "
        f"served_model_name={model}, enable_prefix_caching={dialect.confounds.prefix_cache}, "
        "enable_chunked_prefill=True"
    )
    return {"vllm_config": text, "vllm_env": environment}
