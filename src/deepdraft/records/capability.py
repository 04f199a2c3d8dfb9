"""What a server can do and tell, as its adapter found it. "unknown" is an answer, never a guess."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Ternary = Literal["yes", "no", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """A server's identity, limits and abilities. Token counts are None where the server does not tell them."""

    engine: str
    """The adapter: openai, deepdraft, sglang, vllm, llamacpp, tensorrt_llm, lmdeploy, ollama, tgi."""
    detected_by: str
    """Which answer identified the engine, or "named by the user"."""
    version: str | None = None
    model: str | None = None
    tokenizer: str | None = None
    max_context_len: int | None = None
    """The longest sequence the server is configured for."""
    kv_pool_tokens: int | None = None
    page_size: int | None = None
    max_prompt_len: int | None = None
    """A stricter limit on the prompt that the engine itself states."""
    num_slots: int | None = None
    """How many requests may run at once."""
    endpoints: tuple[str, ...] = ()
    """Which generation routes answered: chat, completions, native."""
    cold_means: tuple[str, ...] = ()
    """Ways to make a request cold besides unique leading tokens: flush, cache_salt, cache_prompt."""
    prefix_cache: Ternary = "unknown"
    reports_cached_tokens: Ternary = "unknown"
    reports_acceptance: Ternary = "unknown"
    """Per request, in the answer itself."""
    continuous_usage: Ternary = "unknown"
    token_id_prompts: Ternary = "unknown"
    ignores_eos: Ternary = "unknown"
    tokenizes: Ternary = "unknown"
    """Whether a tokenize endpoint answers."""
    has_counters: Ternary = "unknown"
    speculation: Ternary = "unknown"
    """Whether a drafter is active."""
    speculation_method: str | None = None
    simulates_acceptance: Ternary = "unknown"
    """Whether accepted lengths are made up (a benchmarking mode) instead of drafts being compared."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The server's effective configuration as it states it (secrets removed)."""
    doubts: tuple[str, ...] = ()
    """What could not be established, or looks wrong, one sentence each."""
