"""From a wish to flags: which settings hold so many requests of a length, and with what to spare.

A search over plans: for every useful set of changes the smallest fraction that holds the wish is found, and the plan
there is judged like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from typing import Any

from deepdraft.errors import UsageError
from deepdraft.planner.flag import FRACTION, VARIABLES, changed, engine_of, flag_name
from deepdraft.planner.frontier import longest_each
from deepdraft.planner.lever import Candidate, Change, PlanOf, allowed_plan, candidates
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import EngineSettings, LlamacppSettings, SglangSettings

_GRID = 200
"""Fractions are multiples of 1 / 200: 0.005 apart."""
_LOWEST, _HIGHEST = 20, 198
_MOST_CHANGES = 4
_CELLS = 256
"""llama.cpp rounds a slot's context up to whole 256s."""
_MOST_OPTIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A set of flags for the wish."""

    settings: EngineSettings
    plan: Plan
    changes: tuple[Change, ...]
    """Against the settings that were given, the fraction included."""
    margin_tokens: int
    """Tokens of the pool beyond the wish itself; negative where it does not hold them."""
    cautions: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the pool has room for the wish and the verdict is no failure."""
        return self.margin_tokens >= 0 and self.plan.verdict.outcome in ("safe", "tight", "unjudged")


def settings_for(
    plan_of: PlanOf,
    start: EngineSettings,
    *,
    target_context_len: int,
    num_requests: int = 1,
    margin_frac: float = 0.02,
) -> tuple[Option, ...]:
    """Flags that hold `num_requests` requests of `target_context_len` tokens each at once, prompt and answer, with a
    pool larger than that by `margin_frac`. The fewest changes come first; of as many, what keeps the model's results
    as they are, then what leaves most room in a prefill. Where nothing holds, the nearest misses.

    `start`: the settings to begin from. Raises UsageError for a wish beyond the model's own limit, as the plan's
    verdict can't tell that.
    """
    wanted = _with_limits(plan_of, start, target_context_len, num_requests, margin_frac)
    found: list[Option] = []
    safe_sets: list[set[Candidate]] = []
    for levers in _sets(candidates(plan_of(wanted), wanted, target_context_len, num_requests)):
        if any(enough <= set(levers) for enough in safe_sets):
            continue  # more changes than needed
        settings = changed(wanted, {lever.field: lever.after for lever, _ in levers})
        if allowed_plan(plan_of, settings) is None:
            continue
        plan = _smallest(plan_of, settings, target_context_len, num_requests, margin_frac)
        option = Option(
            settings=plan.settings,
            plan=plan,
            changes=_changes(start, plan.settings),
            margin_tokens=_margin_tokens(plan, target_context_len, num_requests),
            cautions=tuple(caution for _, caution in levers if caution is not None),
        )
        found.append(option)
        if option.holds and plan.verdict.outcome == "safe":
            safe_sets.append(set(levers))
    return _chosen(found)


def _with_limits(
    plan_of: PlanOf, start: EngineSettings, target_context_len: int, num_requests: int, margin_frac: float
) -> EngineSettings:
    """With the context limit and the cap on requests that the wish can't do without."""
    if isinstance(start, LlamacppSettings):
        each = ceil(target_context_len * (1 + margin_frac) / _CELLS) * _CELLS
        slots = changed(start, {"ctx_size": each * num_requests, "parallel": num_requests})
        plan = plan_of(slots)
        if plan.max_context_len < target_context_len:
            raise UsageError(_beyond(plan, target_context_len), hint="llama.cpp caps a slot at the model's own limit")
        return slots
    plan = plan_of(start)
    limit = "context_length" if isinstance(start, SglangSettings) else "max_model_len"
    cap = "max_running_requests" if isinstance(start, SglangSettings) else "max_num_seqs"
    changes: dict[str, Any] = {}
    if plan.max_context_len < target_context_len:
        if getattr(start, limit) is None:
            raise UsageError(
                _beyond(plan, target_context_len),
                hint=f"if it can be stretched, say so: {flag_name(plan.engine, limit)} {target_context_len}",
            )
        changes[limit] = target_context_len
    asked = getattr(start, cap)
    if asked is not None and asked < num_requests:
        changes[cap] = num_requests
    return changed(start, changes)


def _beyond(plan: Plan, target_context_len: int) -> str:
    return f"{plan.model} is made for {plan.max_context_len:,} tokens, {target_context_len:,} are wanted"


def _sets(levers: Sequence[Candidate]) -> Iterator[tuple[Candidate, ...]]:
    """Sets of changes, small ones first; never two values of one flag."""
    for size in range(min(len(levers), _MOST_CHANGES) + 1):
        for chosen in combinations(levers, size):
            if len({change.field for change, _ in chosen}) == size:
                yield chosen


def _smallest(plan_of: PlanOf, settings: EngineSettings, length: int, num_requests: int, margin_frac: float) -> Plan:
    """The plan at the smallest fraction of the grid whose pool holds the wish; at the highest where none does, and at
    the settings themselves for an engine without a fraction."""
    field = FRACTION.get(engine_of(settings))
    if field is None or getattr(settings, "kv_cache_memory_bytes", None) is not None:
        return plan_of(settings)
    needed_len = ceil(length * (1 + margin_frac))

    def at(place: int) -> Plan:
        return plan_of(changed(settings, {field: place / _GRID}))

    low, high = _LOWEST, _HIGHEST
    while low < high:
        middle = (low + high) // 2
        if longest_each(at(middle), num_requests) >= needed_len:
            high = middle
        else:
            low = middle + 1
    return at(low)


def _margin_tokens(plan: Plan, length: int, num_requests: int) -> int:
    return (longest_each(plan, num_requests) - length) * num_requests


def _changes(start: EngineSettings, settings: EngineSettings) -> tuple[Change, ...]:
    names = [name for name in settings.__dataclass_fields__ if getattr(start, name) != getattr(settings, name)]
    first = FRACTION.get(engine_of(settings))
    names.sort(key=lambda name: (name != first, name in VARIABLES))
    return tuple(Change(name, getattr(start, name), getattr(settings, name)) for name in names)


def _chosen(found: Sequence[Option]) -> tuple[Option, ...]:
    """Safe ones; where there are none, tight ones, then misses."""
    ranks = {"safe": 0, "unjudged": 1, "tight": 1, "out_of_memory_in_prefill": 2, "does_not_start": 3}

    def rank(option: Option) -> tuple[bool, int]:
        return option.margin_tokens < 0, ranks[option.plan.verdict.outcome]

    best = min(map(rank, found))
    kept = _mildest([option for option in found if rank(option) == best])
    is_safe = best == (False, 0)

    def order(option: Option) -> tuple[bool, int, int]:
        """Where nothing is safe, room counts for more than few changes."""
        room = option.plan.reserve_bytes - option.plan.prefill_spike_bytes
        return bool(option.cautions), len(option.changes) if is_safe else 0, -room

    return tuple(sorted(kept, key=order)[:_MOST_OPTIONS])


def _mildest(options: Sequence[Option]) -> list[Option]:
    """Of several that change the same flags the first, whose values are the nearest to those given."""
    first: dict[frozenset[str], Option] = {}
    for option in options:
        first.setdefault(frozenset(change.field for change in option.changes), option)
    return list(first.values())
