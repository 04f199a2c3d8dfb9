"""vLLM's budget: what its fraction is spent on before the pool, foreseen or as a start showed it.

    requested = ceil(memory that CUDA reports x gpu_memory_utilization)
    pool      = requested - weights - activations of the profile run - CUDA graphs

Source: vLLM 0.32.0, v1/worker/gpu_worker.py (determine_available_memory), v1/worker/utils.py (request_memory). What
was taken before its first look at the memory (driver, context, NCCL) is charged to nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

from deepdraft.errors import UsageError
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.gpu_memory import absorbed_entry, outside_entries, weight_entries
from deepdraft.planner.ledger import Ledger, LedgerEntry
from deepdraft.planner.settings import VllmSettings
from deepdraft.planner.size import GIB
from deepdraft.planner.vllm_choice import VllmChoice, vllm_choice
from deepdraft.planner.vllm_profile import activation_entry, graph_entry

_HIDDEN_BYTES = round(0.55 * GIB)
_HIDDEN_ERROR_BYTES = round(0.25 * GIB)
"""What CUDA reports less than the driver: 79.11 of 79.65 GiB (H100), 94.97 of 95.59 (RTX PRO 6000), 23.5 of 23.99
(RTX 4090), 79.2 of 80.0 (A100)."""


def requested_bytes(choice: VllmChoice) -> int:
    """What the fraction asks for."""
    return math.ceil((choice.device_bytes - _HIDDEN_BYTES) * choice.utilization)


def fixed_entries(choice: VllmChoice, calibration: Calibration | None) -> tuple[LedgerEntry, ...]:
    """Everything but the pool, in the order in which it is taken. Raises UsageError for a calibration of another
    engine."""
    foreseen = _foreseen(choice)
    if calibration is None:
        return foreseen
    if not isinstance(calibration.settings, VllmSettings):
        raise UsageError(f"{calibration.source} tells of another engine than vLLM")
    then = vllm_choice(choice.model, choice.device, calibration.settings)
    if then.num_ranks != choice.num_ranks:
        raise UsageError(
            f"{calibration.source} tells of {then.num_ranks} ranks, and the plan is for {choice.num_ranks}",
            hint="measure a start with as many ranks",
        )
    pool_bytes = _measured_pool_bytes(then, calibration)
    if pool_bytes is None or calibration.settings.kv_cache_memory_bytes is not None:
        return foreseen
    consumed_bytes = requested_bytes(then) - pool_bytes
    unexplained = LedgerEntry(
        name="unexplained at the start that was measured",
        num_bytes=consumed_bytes - Ledger(_foreseen(then)).total_bytes("weights", "slack"),
        place="slack",
        certainty="measured",
        source=f"{calibration.source}: what that start took of its fraction, less what was foreseen for it",
    )
    known = tuple(entry if entry.place == "outside" else replace(entry, error_bytes=0) for entry in foreseen)
    return (*known, unexplained)


def budget_error_bytes(choice: VllmChoice, ledger: Ledger) -> int:
    """How far the pool's bytes may be off."""
    if choice.settings.kv_cache_memory_bytes is not None:
        return 0
    is_measured = any(entry.certainty == "measured" for entry in ledger.entries)
    hidden = 0 if is_measured else round(_HIDDEN_ERROR_BYTES * choice.utilization)
    return ledger.error_bytes("weights", "slack") + hidden


def _measured_pool_bytes(then: VllmChoice, calibration: Calibration) -> int | None:
    if calibration.kv_cache_bytes is not None:
        return calibration.kv_cache_bytes
    if calibration.kv_pool_tokens is None:
        return None
    return round(calibration.kv_pool_tokens / then.max_len * then.layout.request_bytes(then.max_len))


def _foreseen(choice: VllmChoice) -> tuple[LedgerEntry, ...]:
    model, settings = choice.model, choice.settings
    tp_size, pp_size = settings.tensor_parallel_size, settings.pipeline_parallel_size
    draft: tuple[LedgerEntry, ...] = ()
    if choice.drafter is not None:
        draft = weight_entries(
            choice.drafter.shape, choice.drafter.weights, tp_size=tp_size, pp_size=1, name="draft weights"
        )
    return (
        *outside_entries(choice.device, choice.num_ranks),
        *weight_entries(model.shape, model.weights, tp_size=tp_size, pp_size=pp_size),
        *absorbed_entry(model.shape, tp_size=tp_size, pp_size=pp_size),
        *draft,
        activation_entry(choice),
        graph_entry(choice),
    )
