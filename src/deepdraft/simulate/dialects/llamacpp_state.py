"""What a llama-server tells of itself: models, props, slots and metrics, in the shapes recorded in October 2026."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from deepdraft.simulate.ask import Ask
from deepdraft.simulate.prometheus import Family, Sample, exposition

if TYPE_CHECKING:
    from deepdraft.simulate.dialects.llamacpp import LlamaCppDialect

_SETTINGS: dict[str, Any] = {
    "seed": 4294967295,
    "temperature": 0.800000011920929,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_k": 40,
    "top_p": 0.949999988079071,
    "min_p": 0.05000000074505806,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "max_tokens": -1,
    "n_predict": -1,
    "n_keep": 0,
    "n_discard": 0,
    "ignore_eos": False,
    "stream": False,
    "n_probs": 0,
    "min_keep": 0,
    "chat_format": "Content-only",
    "reasoning_format": "none",
    "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"],
    "speculative.types": "none",
    "timings_per_token": False,
    "lora": [],
}


def generation_settings(dialect: LlamaCppDialect, ask: Ask | None) -> dict[str, Any]:
    """Sampling settings: the defaults, or those of one request."""
    settings = {**_SETTINGS, "speculative.types": "draft-simple" if dialect.physics.is_speculative else "none"}
    if ask is not None:
        limit = -1 if ask.max_tokens is None else ask.max_tokens
        settings |= {
            "max_tokens": limit,
            "n_predict": limit,
            "ignore_eos": ask.ignores_eos,
            "stream": ask.is_stream,
            "timings_per_token": ask.wants_timings,
        }
    return settings


def model_facts(dialect: LlamaCppDialect) -> dict[str, Any]:
    """GET /v1/models."""
    model = dialect.surface.model
    listed = {
        "name": model,
        "model": model,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"],
        "parameters": "",
        "details": {"parent_model": "", "format": "gguf", "family": "", "families": [""]},
    }
    card = {
        "id": model,
        "aliases": [model],
        "tags": [],
        "object": "model",
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "created": int(dialect.engine.started_at_s),
        "owned_by": dialect.owned_by,
        "meta": {
            "vocab_type": 2,
            "n_vocab": 131_072,
            "n_ctx": dialect.physics.hard_limit_len,
            "n_ctx_train": dialect.physics.max_context_len,
            "n_embd": 576,
            "n_params": 134_515_008,
            "size": 96_576_768,
            "ftype": "Q4_1",
        },
    }
    return {"models": [listed], "object": "list", "data": [card]}


def props(dialect: LlamaCppDialect) -> dict[str, Any]:
    """GET /props."""
    return {
        "default_generation_settings": {
            "params": generation_settings(dialect, None),
            "n_ctx": dialect.physics.hard_limit_len,
        },
        "total_slots": dialect.physics.max_running,
        "model_alias": dialect.surface.model,
        "model_ftype": "Q4_1",
        "model_path": f"/models/{dialect.surface.model}.gguf",
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": dialect.surface.slots,
        "endpoint_props": True,
        "endpoint_metrics": dialect.surface.metrics,
        "ui": True,
        "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "build_info": "b0-unknown",
        "is_sleeping": False,
    }


def slots(dialect: LlamaCppDialect) -> list[dict[str, Any]]:
    """GET /slots: running requests first, then other clients' requests, then idle slots."""
    engine = dialect.engine
    states = []
    for slot_id in range(dialect.physics.max_running):
        state: dict[str, Any] = {
            "id": slot_id,
            "n_ctx": dialect.physics.hard_limit_len,
            "speculative": dialect.physics.is_speculative,
            "is_processing": slot_id < engine.num_running,
        }
        if slot_id < len(engine.running):
            generation = engine.running[slot_id]
            is_decoding = generation.num_made > 0
            uncached = generation.prompt_len - generation.cached_len
            state |= {
                "id_task": generation.truth.ordinal,
                "n_prompt_tokens": generation.prompt_len + generation.num_made,
                "n_prompt_tokens_processed": uncached if is_decoding else 0,
                "n_prompt_tokens_cache": dialect.shown_cached(generation.cached_len),
                "params": generation_settings(dialect, generation.ask),
                "next_token": [
                    {
                        "has_next_token": is_decoding,
                        "has_new_line": False,
                        "n_remain": len(generation.output) - generation.num_made,
                        "n_decoded": generation.num_made,
                    }
                ],
            }
        states.append(state)
    return states


def metrics_text(dialect: LlamaCppDialect) -> str:
    """GET /metrics."""
    engine = dialect.engine
    counters = engine.counters
    families: list[Family] = []

    def add(name: str, help_text: str, value: float, *, is_gauge: bool = False) -> None:
        kind: Literal["counter", "gauge"] = "gauge" if is_gauge else "counter"
        sample = Sample(f"{value:.6g}" if value != int(value) else str(int(value)))
        families.append(Family(f"llamacpp:{name}", help_text, kind, (sample,)))

    cached = dialect.shown_cached(counters.cached_tokens)
    computed = counters.prompt_tokens - cached
    predicted = counters.generation_tokens + engine.background_tokens
    prompt_s, predicted_s = counters.prefill_time_s, counters.decode_time_s
    add("prompt_tokens_total", "Number of prompt tokens processed, excluding cached tokens", computed)
    if dialect.shows_cached_in_counters():
        add("prompt_tokens_cached_total", "Number of prompt tokens reused from the cache", cached)
    add("prompt_seconds_total", "Total time spent processing prompts", prompt_s)
    add("tokens_predicted_total", "Number of generation tokens processed", predicted)
    add("tokens_predicted_seconds_total", "Total time spent generating tokens", predicted_s)
    add("n_decode_total", "Total number of llama_decode() calls", counters.num_decode_steps)
    add("n_tokens_max", "Largest observed sequence length (prompt + generation)", counters.max_sequence_len)
    add(
        "spec_decode_num_draft_tokens_total",
        "Speculative: Total draft tokens generated",
        counters.draft_tokens,
    )
    add(
        "spec_decode_num_accepted_tokens_total",
        "Speculative: Total draft tokens accepted by the target model",
        counters.accepted_tokens,
    )
    add(
        "spec_decode_num_drafts_total",
        "Speculative: Total speculative decoding verification steps",
        counters.num_verify_steps,
    )
    prompt_rate = computed / prompt_s if prompt_s else 0.0
    predicted_rate = counters.generation_tokens / predicted_s if predicted_s else 0.0
    add("prompt_tokens_seconds", "Average prompt throughput in tokens/s", prompt_rate, is_gauge=True)
    add("predicted_tokens_seconds", "Average generation throughput in tokens/s", predicted_rate, is_gauge=True)
    add("requests_processing", "Number of requests processing", engine.num_running, is_gauge=True)
    add("requests_deferred", "Number of requests deferred", engine.num_waiting, is_gauge=True)
    add("n_busy_slots_per_decode", "Average number of busy slots per llama_decode() call", 1, is_gauge=True)
    if counters.num_verify_steps:
        families.append(
            Family(
                "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
                "Accepted tokens per draft position",
                "counter",
                tuple(
                    Sample(str(value), {"position": str(depth)})
                    for depth, value in enumerate(counters.accepted_by_position)
                ),
            )
        )
    return exposition(families)
