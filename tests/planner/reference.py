"""The reference deployment: Kimi K2.6 with its DFlash drafter, 8 x RTX PRO 6000, SGLang 0.5.12. What was reported of
it, and plans for its settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deepdraft.cost.device import device
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import SglangSettings

GIB = 2**30
MODEL = open_model("kimi-k2.6", drafter="kimi-k2.6-dflash")
DEVICE = device("RTX PRO 6000 Blackwell")
SETTINGS = SglangSettings(
    tp_size=8,
    context_length=200_000,
    chunked_prefill_size=8192,
    max_running_requests=64,
    speculative_algorithm="DFLASH",
    speculative_num_draft_tokens=8,
)
"""At first. Later 8 running requests, and for the setting that held half the chunk and expandable segments."""
POOLS = {0.85: 101_134, 0.94: 218_484}
"""Tokens of the pool by fraction; 192k at 0.92 and about 205k at 0.93 were read as rounded."""
RESERVES_GIB = {0.92: 6.2, 0.93: 5.2, 0.94: 4.2}
"""Left once it was up, with 8 running requests."""
PRE_BYTES = round(93.73 * GIB)
"""Free before the weights: the slope between the two pools times the bytes of a token."""


def settings_at(fraction: float, **changes: Any) -> SglangSettings:
    return replace(SETTINGS, mem_fraction_static=fraction, **changes)


def plan_at(fraction: float, calibration: Calibration | None = None, version: str = "0.5.12", **changes: Any) -> Plan:
    return plan_for("sglang", version, MODEL, DEVICE, settings_at(fraction, **changes), calibration)


def started_at(fraction: float, **facts: Any) -> Calibration:
    """A calibration by the start at that fraction: free memory before the weights, and the pool."""
    known = {"available_before_weights_bytes": PRE_BYTES, "kv_pool_tokens": POOLS[fraction]}
    return Calibration(source="server.log", settings=settings_at(fraction), **(known | facts))
