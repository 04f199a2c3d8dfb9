"""What one start of a server told, by which every other setting is predicted."""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.planner.settings import EngineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Figures of one rank's start (of several ranks, the one with least memory). None: not told."""

    source: str
    """"server.log", "http://host:30000/server_info", "two pools"."""
    settings: EngineSettings
    """The settings of that start."""
    kv_pool_tokens: int | None = None
    available_before_weights_bytes: int | None = None
    """SGLang's `pre`: free after communication was set up, before weights."""
    available_after_weights_bytes: int | None = None
    """Free after the target's weights, before a drafter's."""
    weight_bytes: int | None = None
    kv_cache_bytes: int | None = None
    graph_bytes: int | None = None
    activation_bytes: int | None = None
    bytes_per_token: float | None = None
    """Of the pool, as the engine counts: from a log that says it, else from two pools."""
    tokens_per_frac: float | None = None
    """Tokens that a whole unit of the fraction adds to the pool, from two pools at two fractions."""
    reserve_bytes: int | None = None
    """Left once the server was up."""
