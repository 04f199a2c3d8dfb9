"""A plan as the report's memory page takes it: the planner and the report don't know each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepdraft.planner.flag import ENGINE_TITLES, flag_text, stated_fields
from deepdraft.planner.frontier import frontier
from deepdraft.planner.size import size_text
from deepdraft.planner.text import OUTCOMES, num_devices
from deepdraft.report.memory_view import FrontierRow, MemoryGroup, MemoryPart, MemoryView, Tone

if TYPE_CHECKING:
    from deepdraft.planner.ledger import LedgerEntry, Place
    from deepdraft.planner.plan import Plan

_PLACES: tuple[Place, ...] = ("outside", "weights", "pool", "slack")
_SHORT = {"outside": "outside", "weights": "weights", "pool": "KV pool", "slack": "buffers", "reserve": "reserve"}
_TONES: dict[str, Tone] = {"safe": "safe", "tight": "tight", "unjudged": "tight"}


def memory_view(plan: Plan, drafter: str | None = None) -> MemoryView:
    """The view. drafter: its name, where one drafts."""
    flags = [flag_text(plan.engine, name, value) for name, value in stated_fields(plan.settings).items()]
    devices = num_devices(plan)
    groups = [
        MemoryGroup(
            label=_SHORT[place],
            num_bytes=plan.ledger.total_bytes(place),
            parts=tuple(_part(entry) for entry in plan.ledger.at(place)),
        )
        for place in _PLACES
    ]
    groups.append(MemoryGroup(label=_SHORT["reserve"], num_bytes=plan.reserve_bytes, kind="free"))
    groups.append(
        MemoryGroup(
            label="prefill spike",
            num_bytes=plan.prefill_spike_bytes,
            parts=tuple(_part(entry) for entry in plan.ledger.at("spike")),
            kind="spike",
        )
    )
    who = f"{plan.model} with {drafter}" if drafter is not None else plan.model
    return MemoryView(
        title=f"{who} on {devices} x {plan.device}" if devices > 1 else f"{who} on {plan.device}",
        identity=" ".join((ENGINE_TITLES[plan.engine], plan.engine_version, *flags)),
        tone=_TONES.get(plan.verdict.outcome, "fails"),
        outcome=OUTCOMES[plan.verdict.outcome],
        summary=plan.verdict.summary,
        facts=_facts(plan),
        device_bytes=plan.device_bytes,
        groups=tuple(groups),
        frontier=tuple(
            FrontierRow(num_requests=each.num_requests, context_len=each.context_len, bound_by=each.bound_by)
            for each in frontier(plan)
        ),
        max_context_len=plan.max_context_len,
        advice=plan.verdict.advice,
        notes=plan.notes,
    )


def _part(entry: LedgerEntry) -> MemoryPart:
    return MemoryPart(
        name=entry.name,
        num_bytes=entry.num_bytes,
        certainty=entry.certainty,
        source=entry.source,
        error_bytes=entry.error_bytes,
    )


def _facts(plan: Plan) -> tuple[tuple[str, str, str], ...]:
    low, high = plan.kv_pool_tokens_range
    doubt = "" if low == high else f"{low:,} to {high:,}"
    return (
        ("KV pool", f"{plan.kv_pool_tokens:,}", doubt or "tokens"),
        ("longest request", f"{plan.max_request_tokens:,}", f"context limit {plan.max_context_len:,}"),
        ("at once", f"{plan.num_full_requests:,}", f"requests of {plan.max_context_len:,} tokens"),
        ("one token", f"{plan.bytes_per_token:,.0f} B", f"{plan.true_bytes_per_token:,.0f} in truth"),
        ("reserve", size_text(plan.reserve_bytes), "free once the server is up"),
        ("prefill spike", size_text(plan.prefill_spike_bytes), "while a long prompt is prefilled"),
    )
