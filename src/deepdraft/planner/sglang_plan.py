"""A plan for an SGLang server: budget, pool, ledger, limits and verdict, for either version's accounting.

The fraction is of what was free before the weights, `pre`. Weights and pool live in it; activations, graphs and,
where the version loads the drafter later, its weights live beside it. `sglang_0_5_12` and `sglang_0_5_23` say what
differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deepdraft.cost.kv_family import Grouped, kv_bytes_per_sequence
from deepdraft.errors import UsageError
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.gpu_memory import absorbed_entry, outside_entries, weight_entries
from deepdraft.planner.judge import judgement
from deepdraft.planner.ledger import Ledger, LedgerEntry
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_calibrated import measured_memory, unexplained_entry
from deepdraft.planner.sglang_cell import Cell, sglang_cell
from deepdraft.planner.sglang_choice import Choice, sglang_choice
from deepdraft.planner.sglang_fraction import MIB, eager_reserve_mib
from deepdraft.planner.sglang_note import plan_notes
from deepdraft.planner.sglang_pool import Pool, pool_of
from deepdraft.planner.sglang_slack import image_cache_bytes, slack_entries
from deepdraft.planner.sglang_spike import spike_entries
from deepdraft.planner.sglang_window import window_cap_tokens, window_token_bytes


def sglang_plan(choice: Choice, calibration: Calibration | None = None) -> Plan:
    """The plan of that deployment. Raises UsageError for a calibration made with another number of ranks."""
    ledger, pool, cell = budgeted(choice, calibration)
    if calibration is not None and calibration.reserve_bytes is not None:
        ledger = _with_unexplained(choice, ledger, calibration)
    reserve_bytes = choice.device_bytes - ledger.total_bytes("outside", "weights", "pool", "slack")
    max_len = min(choice.context_len, pool.num_tokens) or choice.context_len
    spike = spike_entries(choice, max_len)
    low, high = _range(choice, ledger, pool, cell)
    return Plan(
        engine="sglang",
        engine_version="<= 0.5.12" if choice.version == "0.5.12" else choice.version,
        model=choice.model.shape.name,
        device=choice.device.name,
        settings=choice.settings,
        effective=_effective(choice, pool),
        kv_pool_tokens=pool.num_tokens,
        kv_pool_tokens_range=(low, high),
        bytes_per_token=cell.counted,
        target_bytes_per_token=cell.target,
        true_bytes_per_token=cell.true,
        bytes_per_sequence=_bytes_per_sequence(choice),
        max_request_tokens=max(min(choice.context_len, pool.num_tokens) - 1, 0),
        num_full_requests=_num_full_requests(choice, pool),
        max_context_len=choice.context_len,
        max_running_requests=pool.max_running,
        device_bytes=choice.device_bytes,
        ledger=Ledger((*ledger.entries, *spike)),
        reserve_bytes=reserve_bytes,
        prefill_spike_bytes=sum(entry.num_bytes for entry in spike),
        verdict=judgement(
            reserve_bytes=reserve_bytes,
            reserve_error_bytes=_reserve_error_bytes(choice, ledger),
            spike_of=lambda length: _need(choice, length),
            max_len=max_len,
            starts=pool.num_tokens > 0,
        ),
        is_calibrated=calibration is not None,
        notes=plan_notes(choice, cell, pool),
    )


def budgeted(choice: Choice, calibration: Calibration | None) -> tuple[Ledger, Pool, Cell]:
    """Weights, pool and slack of that deployment. What a start measured replaces the estimates of weights and of what
    is gone outside."""
    cell = sglang_cell(choice)
    if calibration is not None and calibration.bytes_per_token is not None:
        cell = replace(cell, counted=calibration.bytes_per_token)
    outside, weights = _static(choice, cell, calibration)
    pre_bytes = choice.device_bytes - _sum(outside)
    budget_bytes = int(pre_bytes * choice.mem_fraction) - _sum(weights) - image_cache_bytes(choice)
    pool = pool_of(choice, cell, budget_bytes)
    slack = slack_entries(choice, pool.max_running)
    if choice.is_post_capture:  # sized after capture: graphs and buffers come out of the fraction too
        budget_bytes = pre_bytes - _sum(weights) - _sum(slack) - _headroom_bytes(choice, cell, pool, pre_bytes)
        pool = pool_of(choice, cell, budget_bytes)
    late = () if choice.version == "0.5.23" else _draft_weights(choice, place="slack")
    entries = (*outside, *weights, *_pool_entries(choice, cell, pool), *late, *slack)
    return Ledger(entries), pool, cell


def _headroom_bytes(choice: Choice, cell: Cell, pool: Pool, pre_bytes: int) -> int:
    """What stays free after a pool that is sized after capture: what the fraction leaves, and enough for a step
    without a graph where there may be one."""
    headroom_bytes = pre_bytes - int(pre_bytes * choice.mem_fraction)
    if not cell.fixed and pool.max_running <= choice.graph_max_bs:
        return headroom_bytes
    return max(headroom_bytes, round(eager_reserve_mib(choice.device, choice.settings, choice.chunk_len) * MIB))


def _static(
    choice: Choice, cell: Cell, calibration: Calibration | None
) -> tuple[tuple[LedgerEntry, ...], tuple[LedgerEntry, ...]]:
    """Entries outside the engine's count, and those of weights."""
    settings, model = choice.settings, choice.model
    outside = outside_entries(choice.device, choice.num_ranks)
    weights = (
        *weight_entries(model.shape, model.weights, tp_size=settings.tp_size, pp_size=settings.pp_size),
        *absorbed_entry(model.shape, tp_size=choice.attention_tp, pp_size=settings.pp_size),
    )
    if choice.version == "0.5.23":
        weights = (*weights, *_draft_weights(choice, place="weights"))
    if calibration is None:
        return outside, weights
    return measured_memory(choice, cell, calibration, outside, weights)


def _draft_weights(choice: Choice, *, place: Any) -> tuple[LedgerEntry, ...]:
    if choice.drafter is None:
        return ()
    entries = weight_entries(
        choice.drafter.shape,
        choice.drafter.weights,
        tp_size=choice.settings.tp_size,
        pp_size=1,
        name="draft weights",
    )
    return tuple(replace(entry, place=place) for entry in entries)


def _pool_entries(choice: Choice, cell: Cell, pool: Pool) -> tuple[LedgerEntry, ...]:
    if pool.v4 is not None:
        return pool.v4.entries() if pool.num_tokens else ()
    tokens = pool.num_tokens + choice.page_size if pool.num_tokens else 0
    entries = [
        LedgerEntry(
            name="KV pool",
            num_bytes=round(tokens * cell.target),
            place="pool",
            certainty="formula",
            source=f"({pool.num_tokens:,} tokens + 1 page) x {cell.target:,.0f} bytes",
        )
    ]
    cap = window_cap_tokens(choice)
    if cap is not None and pool.num_tokens:
        entries.append(
            LedgerEntry(
                name="KV pool: windows",
                num_bytes=round((cap + choice.page_size) * window_token_bytes(choice)),
                place="pool",
                certainty="formula",
                source=f"{cap:,} tokens + 1 page for {choice.max_running:,} requests, without a radix cache",
            )
        )
    if cell.draft:
        entries.append(
            LedgerEntry(
                name="draft KV pool",
                num_bytes=round(tokens * cell.draft),
                place="pool",
                certainty="formula",
                source=f"as many tokens x {cell.draft:,.0f} bytes",
            )
        )
    if pool.state_bytes:
        entries.append(
            LedgerEntry(
                name="recurrent states",
                num_bytes=pool.state_bytes,
                place="pool",
                certainty="formula",
                source=f"{pool.num_state_slots} slots x {cell.fixed:,} bytes, and those of tokens under verification",
            )
        )
    return tuple(entries)


def _with_unexplained(choice: Choice, ledger: Ledger, calibration: Calibration) -> Ledger:
    """With what the measured start used and the ledger does not foresee, in place of the estimates' errors."""
    if not isinstance(calibration.settings, SglangSettings):
        raise UsageError("the calibration is of another engine")
    start = sglang_choice(choice.version, choice.model, choice.device, calibration.settings)
    foreseen, _, _ = budgeted(start, replace(calibration, reserve_bytes=None))
    foreseen_bytes = choice.device_bytes - foreseen.total_bytes("outside", "weights", "pool", "slack")
    measured = tuple(
        replace(entry, error_bytes=0) if entry.place in ("slack", "outside", "weights") else entry
        for entry in ledger.entries
    )
    return Ledger((*measured, unexplained_entry(calibration, foreseen_bytes)))


def _range(choice: Choice, ledger: Ledger, pool: Pool, cell: Cell) -> tuple[int, int]:
    places = ("outside", "weights", "slack") if choice.is_post_capture else ("outside", "weights")
    error_tokens = int(ledger.error_bytes(*places) / cell.counted) if cell.counted else 0
    page_size = choice.page_size
    low, high = max(pool.num_tokens - error_tokens, 0), pool.num_tokens + error_tokens
    if choice.settings.max_total_tokens is not None:
        high = min(high, max(choice.settings.max_total_tokens, pool.num_tokens))
    return low // page_size * page_size, high // page_size * page_size


def _need(choice: Choice, prompt_len: int) -> tuple[int, int]:
    entries = spike_entries(choice, prompt_len)
    return sum(entry.num_bytes for entry in entries), sum(entry.error_bytes for entry in entries)


def _reserve_error_bytes(choice: Choice, ledger: Ledger) -> int:
    """Slack is off by its own errors; what is gone outside shifts it by the part that the fraction leaves."""
    return ledger.error_bytes("slack") + round((1 - choice.mem_fraction) * ledger.error_bytes("outside"))


def _num_full_requests(choice: Choice, pool: Pool) -> int:
    by_tokens = pool.num_tokens // choice.context_len
    windows = [each.window for each in choice.model.shape.families if isinstance(each, Grouped) and each.window]
    if windows and by_tokens and window_cap_tokens(choice) is None:
        by_tokens = min(by_tokens, int(pool.num_tokens * choice.swa_ratio) // max(windows))
    if pool.v4 is not None and by_tokens:
        by_tokens = min(by_tokens, pool.v4.most_requests)
    return min(by_tokens, pool.max_running)


def _bytes_per_sequence(choice: Choice) -> int:
    if choice.v4 is not None and choice.version == "0.5.23":
        return choice.v4.request_bytes
    return kv_bytes_per_sequence(choice.model.shape.families, choice.form, choice.attention_tp)


def _effective(choice: Choice, pool: Pool) -> dict[str, Any]:
    return {
        "mem_fraction_static": choice.mem_fraction,
        "chunked_prefill_size": choice.chunk_len,
        "context_length": choice.context_len,
        "max_running_requests": pool.max_running,
        "cuda_graph_max_bs": choice.graph_max_bs,
        "attention_backend": choice.backend,
        "kv_cache_dtype": choice.form.key.name,
        "speculative_num_draft_tokens": choice.num_draft_tokens if choice.num_draft_tokens > 1 else None,
        "swa_full_tokens_ratio": choice.swa_ratio,
        "is_sized_after_graph_capture": choice.is_post_capture,
    }


def _sum(entries: tuple[LedgerEntry, ...]) -> int:
    return sum(entry.num_bytes for entry in entries)
