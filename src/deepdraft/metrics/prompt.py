"""How many tokens a prompt has as the server counted it, and how many of them it did not have to compute."""

from __future__ import annotations

from typing import Any

from deepdraft.records import RequestTrace


def prompt_tokens(trace: RequestTrace) -> int | None:
    """Prompt tokens by the server's own count, template included; None when it did not say."""
    if trace.usage is not None and trace.usage.prompt_tokens is not None:
        return trace.usage.prompt_tokens
    timings = server_field(trace, "timings")
    processed, cached = _count(timings, "prompt_n"), _count(timings, "cache_n")
    if processed is not None and cached is not None:  # llama.cpp: prompt_n leaves out what the cache served
        return processed + cached
    return _count(server_field(trace, "meta_info"), "prompt_tokens")


def cached_tokens(trace: RequestTrace) -> int | None:
    """Prompt tokens served from a cache; None when the server did not say, which is not 0."""
    if trace.usage is not None and trace.usage.cached_tokens is not None:
        return trace.usage.cached_tokens
    for name, key in (("timings", "cache_n"), ("meta_info", "cached_tokens")):
        count = _count(server_field(trace, name), key)
        if count is not None:
            return count
    details = server_field(server_field(trace, "sglext"), "cached_tokens_details")
    if isinstance(details, dict):  # SGLang: one count a storage level
        levels = [value for value in details.values() if isinstance(value, int) and not isinstance(value, bool)]
        return sum(levels) if levels else None
    return None


def uncached_prompt_tokens(trace: RequestTrace) -> int | None:
    """Prompt tokens the server had to compute. Where it tells no cached tokens all are taken as uncached:
    `cached_tokens(trace) is None` says so, and the cold-prefix guard marks the figure."""
    total = prompt_tokens(trace)
    if total is None:
        return None
    return max(total - (cached_tokens(trace) or 0), 0)


def server_field(container: Any, name: str) -> Any:
    """An entry of the engine's own figures; None when it is not there. Never raises."""
    if isinstance(container, RequestTrace):
        container = container.server_fields
    return container.get(name) if isinstance(container, dict) else None


def _count(container: Any, key: str) -> int | None:
    value = server_field(container, key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
