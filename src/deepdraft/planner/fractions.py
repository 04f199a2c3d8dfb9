"""What other fractions would make of the same deployment: the table that saves restarts."""

from __future__ import annotations

from collections.abc import Callable

from deepdraft.planner.flag import FRACTION, changed, engine_of
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import EngineSettings

_STEP = 0.01
_NUM_ROUND = 3
_HIGHEST = 0.99


def plans_by_fraction(
    plan_of: Callable[[EngineSettings], Plan], plan: Plan, fractions: tuple[float, ...] = ()
) -> tuple[tuple[float, Plan], ...]:
    """The plan at each of the fractions, ascending, its own among them; by default three steps of 0.01 either way.
    Nothing for an engine without a fraction, and where the pool was given in bytes."""
    field = FRACTION.get(engine_of(plan.settings))
    if field is None or getattr(plan.settings, "kv_cache_memory_bytes", None) is not None:
        return ()
    own = getattr(plan.settings, field)
    own = float(plan.effective[field] if own is None else own)
    wanted = fractions or tuple(own + _STEP * step for step in range(-_NUM_ROUND, _NUM_ROUND + 1))
    places = sorted({round(each, 4) for each in (*wanted, own) if 0 < each <= _HIGHEST})
    return tuple(
        (each, plan if each == round(own, 4) else plan_of(changed(plan.settings, {field: each}))) for each in places
    )
