"""What the engine itself says about a request's time: a second opinion beside the client's stamps.

Known: llama.cpp `timings`, vLLM `metrics` (with --enable-per-request-metrics), SGLang `meta_info`. A figure that an
engine does not give is None; no figure is made up from others.
"""

from __future__ import annotations

from typing import Any

from deepdraft.metrics.prompt import server_field, uncached_prompt_tokens
from deepdraft.records import RequestTrace


def server_prefill_s(trace: RequestTrace) -> float | None:
    """Seconds of prefill by the engine's clock. vLLM's is from scheduled to first token, without the queue."""
    prompt_ms = _positive(server_field(trace, "timings"), "prompt_ms")
    if prompt_ms is None:
        prompt_ms = _positive(server_field(trace, "metrics"), "time_to_first_token_ms")
    if prompt_ms is not None:
        return prompt_ms / 1e3
    meta_info = server_field(trace, "meta_info")
    began, ended = _positive(meta_info, "forward_entry_time"), _positive(meta_info, "prefill_finished_time")
    return ended - began if began is not None and ended is not None and ended > began else None


def server_prefill_tok_s(trace: RequestTrace) -> float | None:
    """Uncached prompt tokens a second by the engine's clock."""
    stated = _positive(server_field(trace, "timings"), "prompt_per_second")
    if stated is not None:
        return stated
    seconds, tokens = server_prefill_s(trace), uncached_prompt_tokens(trace)
    return tokens / seconds if seconds and tokens else None


def server_decode_tok_s(trace: RequestTrace) -> float | None:
    """Output tokens a second while decoding, by the engine's clock."""
    stated = _positive(server_field(trace, "timings"), "predicted_per_second")
    if stated is not None:
        return stated
    itl_ms = _positive(server_field(trace, "metrics"), "mean_itl_ms")
    if itl_ms is not None:
        return 1e3 / itl_ms
    return _positive(server_field(trace, "meta_info"), "decode_throughput")


def server_figures_source(trace: RequestTrace) -> str | None:
    """Which of the engine's fields the figures of this module come from; None when there are none."""
    known = ("timings", "metrics", "meta_info")
    return next((name for name in known if isinstance(server_field(trace, name), dict)), None)


def _positive(container: Any, key: str) -> float | None:
    value = server_field(container, key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        return None
    return float(value)
