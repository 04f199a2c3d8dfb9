"""SGLang 0.5.23: from flags to a pool, in two ways.

As up to 0.5.12, but the drafter's weights are loaded before the pool is sized and count, DFlash's KV is counted
exactly, and EAGLE's by its share of layers. This is the default, and for latent attention, compressed and
block-sparse rows and packed types the only way.
With SGLANG_ENABLE_POST_CAPTURE_KV_SIZING=1 other pools are reserved as addresses and sized after graphs were captured
(post-capture), so graphs and buffers come out of the fraction too, and the fraction's own default reserves little:

    pool   (free after capture - pre x (1 - mem_fraction_static)) / cell, in whole pages

Where steps may run without a graph (more requests than the largest graph holds, recurrent states), at least what the
ordinary default reserves for activations stays free.
DeepSeek-V4 has pools of its own (`sglang_v4`).
Sources: arg_groups/overrides.py and memory_hook.py, mem_cache/kv_cache_configurator.py,
model_executor/pool_configurator.py, model_executor/model_runner_components/kv_pool_runtime.py.
"""

from __future__ import annotations

from deepdraft.cost.device import Device
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_choice import sglang_choice
from deepdraft.planner.sglang_plan import sglang_plan
from deepdraft.planner.shape import Model


def plan_sglang_0_5_23(
    model: Model, device: Device, settings: SglangSettings, calibration: Calibration | None = None
) -> Plan:
    """The plan. Raises UsageError for flags that can't go together, speculation without a drafter, or a calibration
    of another engine or number of ranks."""
    return sglang_plan(sglang_choice("0.5.23", model, device, settings), calibration)
