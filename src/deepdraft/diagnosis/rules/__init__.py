"""The rules, one file each. A rule has a CODE and a NAME that are never reused, a docstring that answers five
questions, and `find`, a pure function from a case to findings.

D1xx scaling with the context, D2xx speculation, D3xx what confounds a measurement, D4xx memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Finding
from deepdraft.diagnosis.rules import (
    d101_prefill_below_floor,
    d102_negative_intercept,
    d103_prefill_attention_bound,
    d104_decode_grows_with_context,
    d105_decode_far_above_floor,
    d106_prefill_rate,
    d107_decode_knee,
    d108_practical_zone,
    d109_throughput_saturates,
    d110_not_as_expected,
    d201_acceptance_contradiction,
    d202_step_is_token,
    d203_step_sources_disagree,
    d204_implied_tokens_per_step,
    d205_faster_than_autoregressive,
    d206_committed_tokens_mismatch,
    d207_below_one_token,
    d208_acceptance_near_floor,
    d209_acceptance_falls,
    d210_drafter_cost_grows,
    d211_below_break_even,
    d212_draft_too_long,
    d213_repetitive_workload,
    d214_acceptance_lower_on_hits,
    d215_drafts_without_gain,
    d216_drafts_switched_off,
    d301_prefix_hits,
    d302_length_label,
    d303_early_stops,
    d304_client_lag,
    d305_other_load,
    d306_gauge_read_too_seldom,
    d307_rate_includes_prefill,
    d308_mixed_workloads,
    d309_eager_mode,
    d401_pool_below_context_limit,
    d402_reserve_below_spike,
    d403_pool_below_load,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the catalogue."""

    code: str
    name: str
    doc: str
    """Its docstring: what it sees, why it matters, evidence needed, remedy, when it is wrong."""
    find: Callable[[Case], tuple[Finding, ...]]


def _rule(module: ModuleType) -> Rule:
    return Rule(code=module.CODE, name=module.NAME, doc=module.__doc__ or "", find=module.find)


RULES: tuple[Rule, ...] = tuple(
    _rule(module)
    for module in (
        d101_prefill_below_floor,
        d102_negative_intercept,
        d103_prefill_attention_bound,
        d104_decode_grows_with_context,
        d105_decode_far_above_floor,
        d106_prefill_rate,
        d107_decode_knee,
        d108_practical_zone,
        d109_throughput_saturates,
        d110_not_as_expected,
        d201_acceptance_contradiction,
        d202_step_is_token,
        d203_step_sources_disagree,
        d204_implied_tokens_per_step,
        d205_faster_than_autoregressive,
        d206_committed_tokens_mismatch,
        d207_below_one_token,
        d208_acceptance_near_floor,
        d209_acceptance_falls,
        d210_drafter_cost_grows,
        d211_below_break_even,
        d212_draft_too_long,
        d213_repetitive_workload,
        d214_acceptance_lower_on_hits,
        d215_drafts_without_gain,
        d216_drafts_switched_off,
        d301_prefix_hits,
        d302_length_label,
        d303_early_stops,
        d304_client_lag,
        d305_other_load,
        d306_gauge_read_too_seldom,
        d307_rate_includes_prefill,
        d308_mixed_workloads,
        d309_eager_mode,
        d401_pool_below_context_limit,
        d402_reserve_below_spike,
        d403_pool_below_load,
    )
)
