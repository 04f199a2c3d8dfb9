"""The state of the engine in numbers, at one moment: what /metrics and /server_info read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class EngineCounts:
    """What happened since the engine began; no count ever falls."""

    num_submitted_total: int = 0
    num_finished_total: int = 0
    """Ended by EOS, a stop string or max_tokens."""
    num_aborted_total: int = 0
    num_preemptions_total: int = 0
    num_prompt_tokens_total: int = 0
    """Of requests whose prefill has ended."""
    num_cached_tokens_total: int = 0
    """Of those, the tokens that the radix cache had at first admission."""
    num_completion_tokens_total: int = 0
    num_moved_pages_total: int = 0
    """By defragmentation."""
    defragment_s_total: float = 0.0
    """Between steps, so in no step's seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Pages and requests now, and the fields of EngineCounts.

    Laws: free + held + cached pages = pool pages; tokens committed by steps + first tokens = completion tokens.
    """

    num_pool_pages: int
    num_free_pages: int
    num_held_pages: int
    """Of running requests alone."""
    num_cached_pages: int
    """In the radix cache, whether or not a running request uses them as well."""
    num_evictable_pages: int
    """Of the cached ones, those that no running request uses."""
    num_running: int
    num_waiting: int
    num_submitted_total: int
    num_finished_total: int
    num_aborted_total: int
    num_preemptions_total: int
    num_prompt_tokens_total: int
    num_cached_tokens_total: int
    num_completion_tokens_total: int
    num_moved_pages_total: int
    defragment_s_total: float
