"""A plan: what an engine will make of a model, a device and its flags. One frozen answer for all engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepdraft.planner.ledger import Ledger
from deepdraft.planner.settings import EngineSettings
from deepdraft.planner.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Bytes are of one device. Token counts of one data-parallel rank."""

    engine: str
    """sglang, vllm, llamacpp."""
    engine_version: str
    """The version whose function this is: "<= 0.5.12", "0.5.23"."""
    model: str
    device: str
    settings: EngineSettings
    """As given."""
    effective: Mapping[str, Any]
    """The values that take effect where `settings` left the choice to the engine, by the engine's names."""

    kv_pool_tokens: int
    kv_pool_tokens_range: tuple[int, int]
    """Low and high, by the entries' errors; both equal to kv_pool_tokens where nothing was estimated."""
    bytes_per_token: float
    """What one token of the pool costs as this engine counts it, drafter included."""
    target_bytes_per_token: float
    """The target model's part, as it truly costs."""
    true_bytes_per_token: float
    """Target and drafter as they truly cost."""
    bytes_per_sequence: int
    """What a running sequence holds besides, whatever its length: windows and states."""

    max_request_tokens: int
    """The longest request, prompt and answer: the least of context limit and pool, as the engine admits it."""
    num_full_requests: int
    """How many requests of `max_context_len` run at once."""
    max_context_len: int
    """The context limit in effect."""
    max_running_requests: int
    """The cap on requests in effect."""

    device_bytes: int
    """All the device's memory."""
    ledger: Ledger
    reserve_bytes: int
    """Left once the server is up and idle: device less everything but the spike."""
    prefill_spike_bytes: int
    """What one chunk of the longest prefill needs besides."""
    verdict: Verdict
    is_calibrated: bool = False
    notes: tuple[str, ...] = ()
    """What the reader must know: what could not be established, or an engine's own quirk. One sentence each."""
