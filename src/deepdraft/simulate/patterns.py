"""Ready specs: one for each way in which real servers mislead or fail a client, by a name that says which.

All share one physics: 50 ms to the first token, 5 ms a token (20 ms a step where a step commits 4), so that a
client's error can be read off at once. What each does to a careless client is told in docs/guides/simulate.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deepdraft.simulate.spec import Confounds, Fault, FaultKind, Physics, SimulateSpec

_ONE = Physics(prefill_a_s=0.05, step_d_s=0.005)
_FOUR = replace(_ONE, step_d_s=0.02, committed_len_pattern=(4,))


def _confounded(physics: Physics = _ONE, **switches: Any) -> SimulateSpec:
    return SimulateSpec(physics=physics, confounds=Confounds(**switches))


PATTERNS: Mapping[str, SimulateSpec] = {
    # several tokens an event
    "plain": _confounded(),
    "four_tokens_an_event": _confounded(_FOUR),
    "large_first_event": _confounded(_FOUR, first_event_len=16),
    "mixed_events": _confounded(replace(_FOUR, step_d_s=0.015, committed_len_pattern=(1, 4, 2, 5))),
    "token_bursts": _confounded(_FOUR, events_per="token"),
    "held_back_tokens": _confounded(stream_interval=8),
    # before the first token
    "early_role_chunk": _confounded(replace(_ONE, prefill_a_s=0.5), role_chunk="early", role_delay_s=0.005),
    "no_role_chunk": _confounded(role_chunk="none"),
    "null_and_empty_events": _confounded(null_events=1, empty_events=1),
    "progress_events": _confounded(progress_events=4),
    "pings": _confounded(replace(_ONE, prefill_a_s=0.3), ping_interval_s=0.05),
    # what kind of token
    "reasoning_then_answer": _confounded(reasoning_len=48),
    "reasoning_other_key": _confounded(reasoning_len=48, reasoning_key="reasoning"),
    "only_reasoning": _confounded(only_reasoning=True),
    "tool_calls": _confounded(tool_calls=True),
    "words_that_retokenise": _confounded(retokenise=True),
    "non_ascii": _confounded(non_ascii=True),
    # after the last token
    "late_usage": _confounded(trailing_pause_s=0.3),
    "usage_in_finish_chunk": _confounded(usage_placement="finish_chunk", usage_when="always"),
    "no_usage": _confounded(usage_placement="absent"),
    "no_done": _confounded(done="missing"),
    "continuous_usage": _confounded(_FOUR, continuous_usage="yes"),
    # bytes
    "no_space_after_data": _confounded(no_data_space=True),
    "crlf_line_ends": _confounded(line_end="crlf"),
    "cr_line_ends": _confounded(line_end="cr"),
    "split_writes": _confounded(split_writes=True, non_ascii=True),
    "coalesced_events": _confounded(coalesce_events=8),
    # lengths
    "early_eos": _confounded(eos_at=20, eos_beats_ignore_eos=True),
    "short_output": _confounded(output_cap=20),
    "truncated_prompt": _confounded(truncate_prompt_to=64),
    "short_template": _confounded(template_len=7),
    "long_template": _confounded(template_len=211),
    # speed
    "slow_first_request": _confounded(slow_first_requests=1, slow_first_s=0.3),
    "drift": _confounded(drift_frac=0.05),
    "background_load": replace(
        _confounded(background_requests=3, background_slowdown=1.5, background_tok_s=300.0), dialect="vllm"
    ),
    "late_first_token": _confounded(first_token_delay_s=1.0),
    # prefix cache
    "prefix_cache": _confounded(replace(_ONE, prefill_b_s=2e-4), prefix_cache=True),
    "silent_prefix_cache": _confounded(
        replace(_ONE, prefill_b_s=2e-4), prefix_cache=True, cached_tokens_report="nothing"
    ),
    "lying_prefix_cache": _confounded(
        replace(_ONE, prefill_b_s=2e-4), prefix_cache=True, cached_tokens_report="zero"
    ),
}
"""Ways to answer. Every request succeeds."""


def _faulty(kind: FaultKind, **settings: Any) -> SimulateSpec:
    return SimulateSpec(physics=_ONE, faults=(Fault(kind=kind, every=3, **settings),))


FAULTS: Mapping[str, SimulateSpec] = {
    "http_500": _faulty("status"),
    "http_503_retry_after": _faulty("status", status=503, retry_after_s=1, message="Overloaded."),
    "http_429_retry_after": _faulty("status", status=429, retry_after_s=1, message="Too many requests."),
    "http_401_bare_string": _faulty("status", status=401, body="bare_string", message="Unauthorized"),
    "http_413_html": _faulty("status", status=413, body="html", message="Request Entity Too Large"),
    "http_422_detail": _faulty("status", status=422, body="detail", message="Unexpected fields in the request."),
    "http_400_nested": _faulty("status", status=400, body="nested", message="Bad request."),
    "http_400_flat": _faulty("status", status=400, body="flat", message="Bad request."),
    "http_400_string": _faulty("status", status=400, body="string", message="Bad request."),
    "html_instead_of_stream": _faulty("status", status=200, body="html", message="Welcome"),
    "cut_stream": _faulty("cut", after_tokens=24),
    "error_in_stream": _faulty("error_in_stream", after_tokens=24),
    "error_before_tokens": _faulty("error_in_stream", after_tokens=0),
    "empty_stream": _faulty("empty_stream"),
    "stalled_stream": _faulty("stall_stream", after_tokens=24),
    "no_answer": _faulty("stall"),
}
"""Ways to fail. Every third request does."""
