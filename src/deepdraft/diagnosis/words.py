"""Remedies and experiments in each engine's own flags; an engine not known here is told in general words.

Flags: SGLang 0.5.23, vLLM 0.33, llama.cpp of October 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Topic = Literal[
    "drafter_off",
    "drafting_always",
    "draft_len",
    "draft_window",
    "synthetic_acceptance",
    "request_acceptance",
    "kv_splits",
    "attention_backend",
    "page_size",
    "cuda_graph",
    "chunk",
    "pool_up",
    "context_limit",
    "max_running",
    "cold",
    "cached_told",
    "shard_kv",
    "preemptions",
]

_GENERAL: Mapping[Topic, str] = MappingProxyType(
    {
        "drafter_off": "start the server without its drafter",
        "drafting_always": "have the server draft at every step",
        "draft_len": "let the drafter propose fewer tokens",
        "draft_window": "limit the drafter's attention to a window",
        "synthetic_acceptance": "an engine's simulated acceptance, where it has one",
        "request_acceptance": "have the server tell its acceptance with each answer",
        "kv_splits": "raise the number of KV splits of decode and verify attention",
        "attention_backend": "use another attention backend for decode and verify",
        "page_size": "serve with a page size of 16 or more",
        "cuda_graph": "let decode and verify run in CUDA graphs",
        "chunk": "lower the chunk size of prefill",
        "pool_up": "give the KV cache more memory",
        "context_limit": "lower the context limit to what the pool holds",
        "max_running": "lower the number of requests that may run at once",
        "cold": "measure with a flushed prefix cache, or with unique first words in every prompt",
        "cached_told": "have the server tell cached prompt tokens",
        "shard_kv": "share the KV cache out over the devices (context parallel decode, or attention data parallel)",
        "preemptions": "watch the server's count of preempted requests while the point runs",
    }
)

_SGLANG: Mapping[Topic, str] = MappingProxyType(
    {
        "drafter_off": "start without --speculative-algorithm",
        "drafting_always": "nothing to set: it drafts at every step",
        "draft_len": "lower --speculative-num-draft-tokens",
        "draft_window": "--speculative-draft-window-size 4096 (--speculative-dflash-draft-window-size in builds of "
        "April and May 2026)",
        "synthetic_acceptance": "SGLANG_SIMULATE_ACC_LEN=N in the server's environment",
        "request_acceptance": "return_spec_tokens_details: true in the request, or --decode-log-interval 1",
        "kv_splits": "raise --triton-attention-num-kv-splits",
        "attention_backend": "another --attention-backend (flashinfer verifies chains, not trees)",
        "page_size": "--page-size 16",
        "cuda_graph": "start without --disable-cuda-graph, and raise --cuda-graph-max-bs if a batch is left out",
        "chunk": "lower --chunked-prefill-size",
        "pool_up": "raise --mem-fraction-static (--context-length does not enter the pool)",
        "context_limit": "lower --context-length",
        "max_running": "lower --max-running-requests",
        "cold": "POST /flush_cache before each request, or a cache_salt of its own in each",
        "cached_told": "--enable-cache-report",
        "shard_kv": "--dcp-size 8 (decode context parallel)",
        "preemptions": 'look for "KV cache pool is full. Retract requests" in the log, '
        "sglang:num_retracted_requests_total",
    }
)

_VLLM: Mapping[Topic, str] = MappingProxyType(
    {
        "drafter_off": "start without --speculative-config",
        "drafting_always": "nothing to set: it drafts at every step",
        "draft_len": "lower num_speculative_tokens in --speculative-config",
        "draft_window": "a drafter with window attention (vLLM has no flag that gives it one)",
        "synthetic_acceptance": '"rejection_sample_method": "synthetic" in --speculative-config',
        "request_acceptance": "--per-request-spec-decode-metrics detailed",
        "kv_splits": "a newer vLLM, whose split count follows the context",
        "attention_backend": "another --attention-backend",
        "page_size": "--block-size 16",
        "cuda_graph": "start without --enforce-eager",
        "chunk": "lower --max-num-batched-tokens",
        "pool_up": "raise --gpu-memory-utilization, or set --kv-cache-memory-bytes",
        "context_limit": "lower --max-model-len (auto finds the longest that fits)",
        "max_running": "lower --max-num-seqs",
        "cold": "a cache_salt of its own in each request, or --no-enable-prefix-caching",
        "cached_told": "--enable-prompt-tokens-details",
        "shard_kv": "--decode-context-parallel-size 8",
        "preemptions": "watch vllm:num_preemptions_total",
    }
)

_LLAMACPP: Mapping[Topic, str] = MappingProxyType(
    {
        "drafter_off": "start with --spec-type none",
        "drafting_always": "nothing to set: it drafts at every step",
        "draft_len": "lower --spec-draft-n-max",
        "draft_window": "a drafter with window attention",
        "synthetic_acceptance": "--spec-synth-len N",
        "request_acceptance": "read timings.draft_n and draft_n_accepted of each answer",
        "kv_splits": "--flash-attn on",
        "attention_backend": "--flash-attn on",
        "page_size": "the cache is contiguous here: nothing to set",
        "cuda_graph": "start without GGML_CUDA_DISABLE_GRAPHS",
        "chunk": "lower --ubatch-size",
        "pool_up": "raise --ctx-size, or shrink its bytes with -ctk q8_0 -ctv q8_0",
        "context_limit": "lower --ctx-size",
        "max_running": "lower --parallel",
        "cold": "cache_prompt: false in the request, and --cache-ram 0",
        "cached_told": "read timings.cache_n of each answer",
        "shard_kv": "--split-mode row",
        "preemptions": "look for context shifts in the log",
    }
)

_DEEPDRAFT: Mapping[Topic, str] = MappingProxyType(
    {
        **_GENERAL,
        "drafter_off": "start with --drafter none, or --speculation never",
        "drafting_always": "--speculation always",
        "draft_len": "lower --tree-budget, or draft a chain (--tree-top-k 1)",
        "draft_window": "--draft-window 512",
        "synthetic_acceptance": "--simulate-acceptance-len N",
        "request_acceptance": "read usage.speculation of each answer",
        "attention_backend": "--attention-backend torch",
        "page_size": "--page-size 16",
        "cuda_graph": "nothing to set: there are no CUDA graphs here",
        "chunk": "lower --chunked-prefill-size",
        "pool_up": "raise --kv-pool-tokens or --mem-fraction",
        "context_limit": "lower --max-context-len",
        "max_running": "lower --max-running-requests",
        "cold": "POST /flush_cache before each request, or --no-radix-cache",
        "cached_told": "read usage.prompt_tokens_details of each answer",
        "preemptions": "watch deepdraft:num_preemptions_total",
    }
)

_BY_ENGINE: Mapping[str, Mapping[Topic, str]] = MappingProxyType(
    {"sglang": _SGLANG, "vllm": _VLLM, "llamacpp": _LLAMACPP, "deepdraft": _DEEPDRAFT}
)


def words(engine: str, topic: Topic) -> str:
    """What to do about a topic on that engine."""
    return _BY_ENGINE.get(engine, _GENERAL)[topic]


def capital(text: str) -> str:
    """With its first letter capital; flags keep theirs."""
    return text[:1].upper() + text[1:]
