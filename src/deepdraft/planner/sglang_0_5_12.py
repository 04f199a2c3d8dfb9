"""SGLang up to 0.5.12: from flags to a pool.

    pre    free after communication was set up, before weights; the least of all ranks
    post   free after the target's weights
    pool   (post - pre x (1 - mem_fraction_static)) / cell, in whole pages

The drafter's weights are loaded after the pool was sized, so they come out of the slack. Its KV counts in `cell` for
DFlash only, as if each draft layer cost what a target layer does. Sources, of 0.5.12.post1: server_args.py,
model_executor/model_runner_kv_cache_mixin.py, model_executor/pool_configurator.py, speculative/dflash_utils.py.
"""

from __future__ import annotations

from deepdraft.cost.device import Device
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_choice import sglang_choice
from deepdraft.planner.sglang_plan import sglang_plan
from deepdraft.planner.shape import Model


def plan_sglang_0_5_12(
    model: Model, device: Device, settings: SglangSettings, calibration: Calibration | None = None
) -> Plan:
    """The plan. Raises UsageError for flags that can't go together, speculation without a drafter, or a calibration
    of another engine or number of ranks."""
    return sglang_plan(sglang_choice("0.5.12", model, device, settings), calibration)
