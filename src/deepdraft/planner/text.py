"""A plan as plain text in at most 80 columns, without colour: verdict, what fits, the picture with its ledger, the
frontier, other fractions, what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from math import ceil

from deepdraft.planner.bar import FILLS, TITLES, bar_lines
from deepdraft.planner.flag import ENGINE_TITLES, flag_name, flag_text, stated_fields
from deepdraft.planner.frontier import FrontierPoint, frontier
from deepdraft.planner.ledger import LedgerEntry, Place
from deepdraft.planner.plan import Plan
from deepdraft.planner.size import size_text
from deepdraft.units import tokens_text

WIDTH = 80
OUTCOMES = {
    "safe": "SAFE",
    "tight": "TIGHT",
    "out_of_memory_in_prefill": "RUNS OUT OF MEMORY IN A PREFILL",
    "does_not_start": "DOES NOT START",
    "unjudged": "NOT JUDGED",
}
_LABEL = 16
_VALUE = 19
_FRONTIER_BAR = 30
_PLACES: tuple[Place, ...] = ("outside", "weights", "pool", "slack")


def plan_text(
    plan: Plan,
    *,
    drafter: str | None = None,
    others: Sequence[tuple[float, Plan]] = (),
    has_sources: bool = False,
) -> str:
    """The whole plan.

    drafter: its name, where one drafts. others: the plan at other fractions (`plans_by_fraction`). has_sources: the
    formula or source of every entry below it.
    """
    parts = [
        heading(plan, drafter),
        verdict_text(plan),
        _fits(plan),
        _flags(plan),
        _memory(plan, has_sources=has_sources),
        _frontier(plan),
        _others(plan, others),
        _bullets("What to do", plan.verdict.advice),
        _bullets("Notes", plan.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def heading(plan: Plan, drafter: str | None = None) -> str:
    """What is planned: model, devices, engine."""
    devices = num_devices(plan)
    where = f"{devices} x {plan.device}" if devices > 1 else plan.device
    who = f"{plan.model} with {drafter}" if drafter is not None else plan.model
    return wrapped(f"{who} on {where}, {ENGINE_TITLES[plan.engine]} {plan.engine_version}")


def _flags(plan: Plan) -> str:
    """Flags as given, then what the engine chooses where none was."""
    stated = stated_fields(plan.settings)
    given = [flag_text(plan.engine, name, value) for name, value in stated.items()]
    chosen = [
        f"{flag_name(plan.engine, name).removeprefix('--')} {_plain(value)}"
        for name, value in plan.effective.items()
        if name not in stated and value is not None and hasattr(plan.settings, name)
    ]
    lines = [_titled("Flags"), *_rows_of(given)]
    if chosen:
        lines.append(wrapped(f"left to the engine: {', '.join(chosen)}", "", "  "))
    return "\n".join(lines)


def _rows_of(flags: Sequence[str]) -> list[str]:
    """As many flags a line as fit, a flag never apart from its value."""
    lines: list[str] = []
    for flag in flags:
        if lines and len(lines[-1]) + len(flag) + 2 <= WIDTH:
            lines[-1] += f"  {flag}"
        else:
            lines.append(flag)
    return lines


def num_devices(plan: Plan) -> int:
    """Devices of one replica."""
    settings = plan.settings
    tp_size = getattr(settings, "tp_size", None) or getattr(settings, "tensor_parallel_size", None) or 1
    pp_size = getattr(settings, "pp_size", None) or getattr(settings, "pipeline_parallel_size", None) or 1
    return int(tp_size) * int(pp_size) * int(getattr(settings, "num_devices", 1))


def verdict_text(plan: Plan) -> str:
    """The outcome in capitals, and the sentence with its figures."""
    summary = plan.verdict.summary.removeprefix("Safe: ").removeprefix("Tight: ").removeprefix("Does not start: ")
    return f"{OUTCOMES[plan.verdict.outcome]}\n{wrapped(summary[:1].upper() + summary[1:])}"


def wrapped(text: str, first: str = "", rest: str | None = None) -> str:
    """One paragraph."""
    return "\n".join(
        textwrap.wrap(
            text,
            WIDTH,
            initial_indent=first,
            subsequent_indent=first if rest is None else rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def _fits(plan: Plan) -> str:
    low, high = plan.kv_pool_tokens_range
    if plan.is_calibrated and low == high:
        doubt = "calibrated by a start"
    elif low == high:
        doubt = ""
    else:
        doubt = f"{tokens_text(low)} to {tokens_text(high)}" + (
            "; calibrated" if plan.is_calibrated else "; no start measured"
        )
    counted, target, true = (
        round(each) for each in (plan.bytes_per_token, plan.target_bytes_per_token, plan.true_bytes_per_token)
    )
    costs = [f"target alone {target:,}"] if target != counted else []
    if true not in (counted, target):
        costs.append(f"in truth {true:,}")
    rows = [
        ("KV pool", f"{plan.kv_pool_tokens:,} tokens", doubt),
        ("one token", f"{counted:,} bytes", ", ".join(costs)),
    ]
    if plan.bytes_per_sequence:
        rows.append(("each request", size_text(plan.bytes_per_sequence), "besides, whatever its length"))
    rows += [
        ("longest request", f"{plan.max_request_tokens:,} tokens", f"context limit {plan.max_context_len:,}"),
        (
            "at once",
            f"{plan.num_full_requests:,} of {tokens_text(plan.max_context_len)}"
            if plan.num_full_requests
            else f"none of {tokens_text(plan.max_context_len)}",
            f"{plan.max_running_requests:,} requests at most, however short",
        ),
        ("reserve", size_text(plan.reserve_bytes), "free once the server is up"),
        ("prefill spike", size_text(plan.prefill_spike_bytes), "needed from it while a prompt is prefilled"),
    ]
    return "\n".join(_row(*row) for row in rows)


def _row(label: str, value: str, remark: str) -> str:
    head = f"{label:<{_LABEL}}{value:<{_VALUE}}"
    return wrapped(f"{head}{remark}".rstrip(), "", " " * (_LABEL + _VALUE)) if remark else head.rstrip()


def _memory(plan: Plan, *, has_sources: bool) -> str:
    devices = num_devices(plan)
    title = f"Memory of {'each device' if devices > 1 else 'the device'}: {size_text(plan.device_bytes)}"
    lines = [_titled(title), *bar_lines(plan, WIDTH - 2), ""]
    for place in _PLACES:
        lines += _group(place, plan.ledger.total_bytes(place), plan.ledger.at(place), has_sources=has_sources)
    lines += _group("reserve", plan.reserve_bytes, (), has_sources=has_sources)
    lines += _group("spike", plan.prefill_spike_bytes, plan.ledger.at("spike"), has_sources=has_sources)
    return "\n".join(lines)


def _group(place: str, num_bytes: int, entries: Sequence[LedgerEntry], *, has_sources: bool) -> list[str]:
    if not num_bytes and not entries:
        return []
    lines = [f"{FILLS[place]} {TITLES[place]:<42}{size_text(num_bytes):>12}"]
    for entry in entries:
        lines += _entry(entry)
        if has_sources:
            lines.append(wrapped(entry.source, "        "))
    return lines


def _entry(entry: LedgerEntry) -> list[str]:
    doubt = f" +- {size_text(entry.error_bytes)}" if entry.error_bytes else ""
    name = textwrap.wrap(entry.name, 40, break_on_hyphens=False) or [""]
    first = f"    {name[0]:<40}{size_text(entry.num_bytes):>12}  {entry.certainty}{doubt}"
    return [first, *(f"      {more}" for more in name[1:])]


def _frontier(plan: Plan) -> str:
    points = frontier(plan)
    if not points:
        return ""
    widest = max(point.context_len for point in points) or 1
    lines = [_titled("Requests at once, and how long each may be"), f"{'requests':>12}  {'tokens each':>11}"]
    for same in _alike(points):
        bar = "=" * ceil(_FRONTIER_BAR * same[0].context_len / widest)
        nums = f"{same[0].num_requests:,}" + (f" to {same[-1].num_requests:,}" if len(same) > 1 else "")
        lines.append(f"{nums:>12}  {same[0].context_len:>11,}  {bar:<{_FRONTIER_BAR}}  {same[0].bound_by}")
    return "\n".join(lines)


def _alike(points: Sequence[FrontierPoint]) -> list[list[FrontierPoint]]:
    """Points in a row that allow the same length."""
    found: list[list[FrontierPoint]] = []
    for point in points:
        if found and found[-1][0].context_len == point.context_len:
            found[-1].append(point)
        else:
            found.append([point])
    return found


def _others(plan: Plan, others: Sequence[tuple[float, Plan]]) -> str:
    if len(others) < 2:
        return ""
    lines = [
        _titled("Other fractions, all else the same"),
        f"  {'fraction':>8}  {'KV pool':>9}  {'reserve':>10}  {'left in a prefill':>17}  verdict",
    ]
    for fraction, other in others:
        mark = ">" if other is plan else " "
        left = other.reserve_bytes - other.prefill_spike_bytes
        lines.append(
            f"{mark} {fraction:>8.4g}  {other.kv_pool_tokens:>9,}  {size_text(other.reserve_bytes):>10}  "
            f"{size_text(left):>17}  {_outcome(other)}"
        )
    return "\n".join(lines)


def _outcome(plan: Plan) -> str:
    if plan.verdict.fails_at_len is not None:
        return f"fails from {tokens_text(plan.verdict.fails_at_len)} on"
    return {"does_not_start": "does not start", "out_of_memory_in_prefill": "fails in a prefill"}.get(
        plan.verdict.outcome, plan.verdict.outcome
    )


def _bullets(title: str, lines: Iterable[str]) -> str:
    written = [wrapped(line, "- ", "  ") for line in lines]
    return "\n".join([_titled(title), *written]) if written else ""


def _titled(title: str) -> str:
    return f"{title}\n{'-' * len(title)}"


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
