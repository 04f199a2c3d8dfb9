"""From what one start of a server told to a calibration: figures of a log, of a running server, or two pools.

Logs are read by `importers` and servers by `adapters`; here their figures, by our names, become a `Calibration`.
What a plan makes of it is each engine's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import ceil, floor
from typing import Any

from deepdraft.errors import UsageError
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.flag import FRACTION, SETTINGS, changed, engine_of, flag_name
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import EngineSettings, SglangSettings

_PRICE_TOLERANCE_FRAC = 0.015
"""Logs print GiB with two digits: 0.2 % of a small pool. Versions differ by 5 %."""
_MEMORY = (
    "available_before_weights_bytes",
    "available_after_weights_bytes",
    "weight_bytes",
    "kv_cache_bytes",
    "graph_bytes",
    "activation_bytes",
    "reserve_bytes",
)
_SWITCHES = ("kv_unified", "flash_attn")
_TEXTS = (
    "kv_cache_dtype",
    "attention_backend",
    "dsv4_attn_backend",
    "moe_a2a_backend",
    "speculative_algorithm",
    "cache_type_k",
    "cache_type_v",
)
_FRACTIONS = (
    "mem_fraction_static",
    "gpu_memory_utilization",
    "swa_full_tokens_ratio",
    "mamba_full_memory_ratio",
)


def settings_of(engine: str, stated: Mapping[str, Any], told: Mapping[str, Any] | None = None) -> EngineSettings:
    """The settings of a start: what it states, by the engine's own names, over what the user told of it.

    Values of another type than the field takes count as not stated: "auto" where a number belongs.
    """
    kind = SETTINGS[engine]
    known = {field.name: field.default for field in fields(kind)}
    taken = {
        name: value
        for name, value in ((name, _typed(stated.get(name), known[name], name)) for name in known)
        if value is not None
    }
    return kind(**{**(told or {}), **taken})


def calibration_of_start(
    engine: str,
    *,
    source: str,
    settings: EngineSettings,
    memory: Mapping[str, int],
    kv_pool_tokens: int | None,
) -> Calibration:
    """What a start's log or a running server tells. `memory`: bytes by the names of `Calibration`; others are
    passed over. Raises UsageError where neither a pool nor memory is told, or no fraction where the engine has one.
    """
    told = {name: memory[name] for name in _MEMORY if memory.get(name)}
    if kv_pool_tokens is None and not told:
        raise UsageError(
            f"{source} tells nothing of memory: neither the KV pool nor what was free",
            hint="give the log from the server's start on: it begins before the weights are loaded",
        )
    field = FRACTION.get(engine)
    if field is not None and getattr(settings, field) is None:
        raise UsageError(
            f"{source} does not tell the {flag_name(engine, field)} of that start",
            hint=f"say it: --started-with {flag_name(engine, field).removeprefix('--')}=0.9",
        )
    before, weights = told.get("available_before_weights_bytes"), told.get("weight_bytes")
    if "available_after_weights_bytes" not in told and before is not None and weights is not None:
        told["available_after_weights_bytes"] = before - weights
    return Calibration(source=source, settings=settings, kv_pool_tokens=kv_pool_tokens, **told)


def calibration_of_two_pools(
    first: tuple[float, int], second: tuple[float, int], settings: EngineSettings
) -> Calibration:
    """From (fraction, pool tokens) of two starts that differ in nothing else. Needs no knowledge of the model: the
    pool is a straight line of the fraction, whose slope is the memory that the fraction divides over the bytes of a
    token.

    `settings`: those of both starts; its fraction is ignored. Raises UsageError for an engine without a fraction,
    for equal fractions, and for a pool that does not grow with the fraction.
    """
    engine = engine_of(settings)
    field = FRACTION.get(engine)
    if field is None:
        raise UsageError("llama.cpp has no fraction: two pools tell nothing of a third", hint="give --ctx-size")
    (low_frac, low_tokens), (high_frac, high_tokens) = sorted((first, second))
    if low_frac == high_frac:
        raise UsageError(f"two pools at one fraction ({low_frac:g}) tell no line", hint="give pools of two fractions")
    if low_tokens >= high_tokens:
        raise UsageError(
            f"the pool does not grow from {low_frac:g} to {high_frac:g} ({low_tokens:,} to {high_tokens:,} tokens)",
            hint="the two starts differ in more than the fraction, or a cap (--max-total-tokens) holds the pool",
        )
    return Calibration(
        source=f"two pools: {low_tokens:,} tokens at {low_frac:g}, {high_tokens:,} at {high_frac:g}",
        settings=changed(settings, {field: high_frac}),
        kv_pool_tokens=high_tokens,
        tokens_per_frac=(high_tokens - low_tokens) / (high_frac - low_frac),
    )


def calibration_of_pools(pools: Sequence[tuple[float, int]], settings: EngineSettings) -> Calibration:
    """From the pool at one fraction, which sets the weights right, or at two (`calibration_of_two_pools`).

    Raises UsageError for another number of pools, and as that does.
    """
    if len(pools) == 2:
        return calibration_of_two_pools(pools[0], pools[1], settings)
    field = FRACTION.get(engine_of(settings))
    if len(pools) != 1 or field is None:
        raise UsageError(
            "one pool or two, of an engine with a fraction", hint="--pool 0.85=101134 --pool 0.94=218484"
        )
    fraction, tokens = pools[0]
    return Calibration(
        source=f"{tokens:,} tokens at {fraction:g}",
        settings=changed(settings, {field: fraction}),
        kv_pool_tokens=tokens,
    )


def price_doubt(plan: Plan, calibration: Calibration) -> str | None:
    """A sentence where an SGLang start's own figures (free before and after weights, pool) imply another price of a
    token than the plan's version counts; None where they agree or don't tell."""
    implied = _implied_bytes_per_token(calibration)
    is_told = implied is not None and not plan.bytes_per_sequence
    if not is_told or implied is None or plan.effective.get("is_sized_after_graph_capture"):
        return None
    if abs(implied / plan.bytes_per_token - 1) < _PRICE_TOLERANCE_FRAC:
        return None
    return (
        f"{calibration.source} implies {implied:,.0f} bytes a token, {plan.engine_version} counts "
        f"{plan.bytes_per_token:,.0f}: was it another version (--engine-version), drafter or cache type? Other "
        "fractions are off until they agree."
    )


def _implied_bytes_per_token(calibration: Calibration) -> float | None:
    """(free after weights - free before x (1 - fraction)) / pool: what SGLang divided by, to the log's two digits."""
    settings = calibration.settings
    before, after = calibration.available_before_weights_bytes, calibration.available_after_weights_bytes
    if not isinstance(settings, SglangSettings) or settings.max_total_tokens is not None:
        return None
    if settings.mem_fraction_static is None or before is None or after is None or not calibration.kv_pool_tokens:
        return None
    return (after - before * (1 - settings.mem_fraction_static)) / calibration.kv_pool_tokens


def predicted_pool(calibration: Calibration, fraction: float) -> int:
    """Tokens of the pool at another fraction, by the line of two pools alone. 0 where nothing is left for a pool.

    Raises UsageError for a calibration that holds no line.
    """
    field = FRACTION.get(engine_of(calibration.settings))
    if calibration.tokens_per_frac is None or calibration.kv_pool_tokens is None or field is None:
        raise UsageError("another fraction's pool needs pools at two fractions", hint="--pool 0.85=N --pool 0.94=N")
    known: float = getattr(calibration.settings, field)
    tokens = calibration.kv_pool_tokens + calibration.tokens_per_frac * (fraction - known)
    page_size = getattr(calibration.settings, "page_size", None) or getattr(calibration.settings, "block_size", None)
    return max(0, floor(tokens / (page_size or 1)) * (page_size or 1))


def fraction_for(calibration: Calibration, pool_tokens: int, step: float = 0.001) -> float:
    """The smallest fraction on the grid whose predicted pool holds so many tokens; may exceed 1, which no engine
    takes. Raises UsageError as `predicted_pool` does."""
    at_zero = predicted_line(calibration)
    return ceil((pool_tokens - at_zero[0]) / at_zero[1] / step - 1e-9) * step


def predicted_line(calibration: Calibration) -> tuple[float, float]:
    """(tokens at fraction 0, tokens a whole unit of it adds): the first is below zero, by the weights."""
    predicted_pool(calibration, 1.0)
    field = FRACTION[engine_of(calibration.settings)]
    known: float = getattr(calibration.settings, field)
    assert calibration.kv_pool_tokens is not None and calibration.tokens_per_frac is not None
    return calibration.kv_pool_tokens - calibration.tokens_per_frac * known, calibration.tokens_per_frac


def _typed(value: Any, default: Any, name: str) -> Any:
    """The value where the field can hold it: numbers as text are read, "auto" in a number's place is not said."""
    if value is None or isinstance(value, dict | list):
        return None
    if isinstance(default, bool) or name in _SWITCHES:
        return value if isinstance(value, bool) else {"True": True, "False": False}.get(str(value))
    if name in _TEXTS:
        return str(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if name in _FRACTIONS:
        return number
    return int(number) if number == int(number) else None
