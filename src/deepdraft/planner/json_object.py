"""A plan, its options and its checks as plain JSON objects; keys are the field names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from deepdraft.planner.back import Option
from deepdraft.planner.check import Check
from deepdraft.planner.flag import stated_fields
from deepdraft.planner.frontier import frontier
from deepdraft.planner.lever import Lever
from deepdraft.planner.plan import Plan


def plan_object(plan: Plan) -> dict[str, Any]:
    """The plan. `flags` holds the settings that were given and, below `chosen`, what the engine chooses itself."""
    return {
        "engine": plan.engine,
        "engine_version": plan.engine_version,
        "model": plan.model,
        "device": plan.device,
        "verdict": asdict(plan.verdict),
        "kv_pool_tokens": plan.kv_pool_tokens,
        "kv_pool_tokens_range": list(plan.kv_pool_tokens_range),
        "bytes_per_token": plan.bytes_per_token,
        "target_bytes_per_token": plan.target_bytes_per_token,
        "true_bytes_per_token": plan.true_bytes_per_token,
        "bytes_per_sequence": plan.bytes_per_sequence,
        "max_request_tokens": plan.max_request_tokens,
        "num_full_requests": plan.num_full_requests,
        "max_context_len": plan.max_context_len,
        "max_running_requests": plan.max_running_requests,
        "device_bytes": plan.device_bytes,
        "reserve_bytes": plan.reserve_bytes,
        "prefill_spike_bytes": plan.prefill_spike_bytes,
        "is_calibrated": plan.is_calibrated,
        "ledger": [asdict(entry) for entry in plan.ledger.entries],
        "frontier": [asdict(point) for point in frontier(plan)],
        "flags": {**stated_fields(plan.settings), "chosen": dict(plan.effective)},
        "notes": list(plan.notes),
    }


def option_object(option: Option) -> dict[str, Any]:
    """One set of flags that was asked for."""
    return {
        "changes": [asdict(change) for change in option.changes],
        "holds": option.holds,
        "margin_tokens": option.margin_tokens,
        "plan": plan_object(option.plan),
    }


def lever_object(lever: Lever) -> dict[str, Any]:
    """One flag and what it frees."""
    return {**asdict(lever.change), "freed_bytes": lever.freed_bytes, "caution": lever.caution}


def checks_object(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """The checks of a plan against a running server."""
    return [asdict(check) for check in checks]
