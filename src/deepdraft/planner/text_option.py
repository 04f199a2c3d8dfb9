"""Ways to a wish, checks and advice as plain text in at most 80 columns, without colour."""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.planner.back import Option
from deepdraft.planner.check import Check
from deepdraft.planner.died import Moment
from deepdraft.planner.flag import flag_text
from deepdraft.planner.lever import Change, Lever
from deepdraft.planner.plan import Plan
from deepdraft.planner.size import size_text
from deepdraft.planner.text import OUTCOMES, WIDTH, wrapped

_MOST_LEVERS = 6


def options_text(
    options: Sequence[Option],
    levers: Sequence[Lever],
    *,
    start: Plan,
    target_context_len: int,
    num_requests: int,
    margin_frac: float,
) -> str:
    """The flags that hold the wish, beside each other, and what each flag frees."""
    wish = f"{num_requests} x {target_context_len:,} tokens"
    title = f"To hold {wish} with {100 * margin_frac:g} % to spare"
    given = f"As given: {start.kv_pool_tokens:,} tokens; {OUTCOMES[start.verdict.outcome].lower()}."
    lines = [f"{title}\n{'-' * len(title)}", wrapped(given)]
    if not any(option.holds for option in options):
        lines.append(wrapped("No set of flags that I know holds it. The nearest misses:"))
    for place, option in enumerate(options):
        lines += ["", *_option(place + 1, option, start.engine)]
    if levers:
        lines += ["", "What each flag frees by itself, at the same pool:"]
        lines += [_lever(lever, start.engine) for lever in levers[:_MOST_LEVERS]]
    return "\n".join(lines) + "\n"


def checks_text(checks: Sequence[Check]) -> str:
    """Planned beside reported."""
    if not checks:
        return "The server tells nothing that the plan says: nothing was checked.\n"
    lines = [f"{'':<28}{'planned':>16}{'server':>16}{'':>9}"]
    for check in checks:
        difference = check.difference_frac
        share = f"{100 * difference:+.1f} %" if difference is not None and abs(difference) > 5e-4 else ""
        state = "" if check.agrees else "  differs"
        lines.append(
            f"{check.name:<28}{_amount(check.planned):>16}{_amount(check.reported):>16}{share:>9}{state}".rstrip()
        )
        if check.remark:
            lines.append(wrapped(check.remark, "    "))
    differing = sum(not check.agrees for check in checks)
    verdict = (
        f"{differing} of {len(checks)} differ from the plan."
        if differing
        else f"The server is as planned: {len(checks)} of {len(checks)} agree."
    )
    return "\n".join([verdict, "", *lines]) + "\n"


def died_text(moment: Moment, advice: Sequence[str]) -> str:
    """Which way to turn, the first sentence first."""
    title = "It died at the start" if moment == "start" else "It died in a prefill"
    return "\n".join([title, "-" * len(title), *(wrapped(line, "- ", "  ") for line in advice)]) + "\n"


def _option(number: int, option: Option, engine: str) -> list[str]:
    plan = option.plan
    left = plan.reserve_bytes - plan.prefill_spike_bytes
    head = (
        f"{number}. {OUTCOMES[plan.verdict.outcome].lower()}: {plan.kv_pool_tokens:,} tokens "
        f"({option.margin_tokens:+,}), reserve {size_text(plan.reserve_bytes)}, {size_text(left)} of it left in a "
        "prefill"
    )
    lines = [wrapped(head, "", "   ")]
    lines += [wrapped(_change(change, engine), "     ", "       ") for change in option.changes]
    lines += [wrapped(f"! {caution}", "     ", "       ") for caution in dict.fromkeys(option.cautions)]
    return lines if option.changes else [*lines, "     the flags as they are"]


def _change(change: Change, engine: str) -> str:
    text = flag_text(engine, change.field, change.after)
    if change.before is None or isinstance(change.after, bool):
        return text
    return f"{text:<44} was {change.before}"


def _lever(lever: Lever, engine: str) -> str:
    text = flag_text(engine, lever.change.field, lever.change.after)
    caution = f"  ({lever.caution})" if lever.caution else ""
    line = f"  {size_text(lever.freed_bytes):>10}  {text}"
    return line + caution if len(line + caution) <= WIDTH else f"{line}\n{wrapped(lever.caution or '', ' ' * 14)}"


def _amount(value: float | int | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
