"""Part `cost` as Markdown: the tables, and what they say and don't."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from .cost import LOADS, Costs, Load, Pair
from .page import OURS, named, row, rule, spread

FLOOR_AIM_US = 75.0


def cost_section(costs: Costs, taken: str) -> str:
    """Part `cost`."""
    return "\n".join(
        [
            "## Cost",
            "",
            taken,
            "",
            f"Median over {len(next(iter(costs[OURS].values())))} rounds (lowest to highest). An event carries one "
            "token. *In the streams*: CPU from the server's receipt of the first request to its last token, the "
            "difference of a long and a short run over the events between them. *To the end*: the same, to the "
            "client's exit, so that what a client does with an event after the streams counts too; with the engines' "
            "clients half a second of other work there swings from run to run, and can turn the difference negative.",
            "",
            *_cpu_table(costs, "CPU us an event, in the streams", lambda pair: pair.in_streams_us),
            "",
            *_cpu_table(costs, "CPU us an event, to the end", lambda pair: pair.to_end_us),
            "",
            *_fixed_table(costs),
            "",
            *_cost_reading(costs),
        ]
    )


def _cpu_table(costs: Costs, title: str, figure: Callable[[Pair], float]) -> Iterator[str]:
    heads = [f"{_streams(load)}, {load.events_s:,.0f} events/s" for load in LOADS]
    yield row([title, *heads])
    yield rule(1 + len(heads))
    for name, pairs in costs.items():
        yield row([named(name), *(spread([figure(pair) for pair in pairs[load.num_streams]]) for load in LOADS)])


def _fixed_table(costs: Costs) -> Iterator[str]:
    few, many = LOADS[0].num_streams, LOADS[-1].num_streams
    yield row(
        [
            "client",
            "CPU s of one request of 64 tokens, all in",
            f"wall s beside the streams, {few} stream",
            f"wall s beside the streams, {many} streams",
            f"TTFT error ms, {many} starting at once",
            f"TPOT error %, {many} streams",
        ]
    )
    yield rule(6)
    for name, pairs in costs.items():
        errors = [pair.ttft_error_ms for pair in pairs[many] if pair.ttft_error_ms is not None]
        tpot_errors = [100 * pair.tpot_error_frac for pair in pairs[many] if pair.tpot_error_frac is not None]
        yield row(
            [
                named(name),
                spread([pair.fixed_cpu_s for pair in pairs[few]], ".2f"),
                spread([pair.beyond_streams_s for pair in pairs[few]], ".1f"),
                spread([pair.beyond_streams_s for pair in pairs[many]], ".1f"),
                spread(errors, "+.1f") if errors else "not said",
                spread(tpot_errors, "+.1f") if tpot_errors else "not said",
            ]
        )


def _cost_reading(costs: Costs) -> Iterator[str]:
    """What the figures say and what they don't: two ranges that overlap show no difference."""
    yield "Reading:"
    yield ""
    figures: dict[str, Callable[[Pair], float]] = {
        "in the streams": lambda pair: pair.in_streams_us,
        "to the end": lambda pair: pair.to_end_us,
    }
    for load in LOADS:
        pairs_of_load = {name: pairs[load.num_streams] for name, pairs in costs.items()}
        texts = [f"{title} {_verdicts(pairs_of_load, figure)}" for title, figure in figures.items()]
        yield f"- An event at {_streams(load)}: ours is {'; '.join(texts)}."
    many = LOADS[-1].num_streams
    ours_us = statistics.median(pair.to_end_us for pair in costs[OURS][many])
    verdict = "met" if ours_us <= FLOOR_AIM_US else "missed"
    yield f"- The aim of {FLOOR_AIM_US:.0f} us an event at {many} streams: {verdict}, with {ours_us:.0f} us."
    few = LOADS[0].num_streams
    fixed = {name: statistics.median(pair.fixed_cpu_s for pair in pairs[few]) for name, pairs in costs.items()}
    others = ", ".join(f"{name} {value:.1f} s" for name, value in fixed.items() if name != OURS)
    yield f"- A run of one request costs ours {fixed[OURS]:.2f} s of CPU; {others}."
    walls = {name: statistics.median(pair.beyond_streams_s for pair in pairs[few]) for name, pairs in costs.items()}
    slower = [name for name, value in walls.items() if name != OURS and value < walls[OURS]]
    if slower:
        yield (
            f"- Ours is slower to get there: {walls[OURS]:.1f} s pass beside the streams, more than with "
            f"{', '.join(slower)}. "
            "Ours first finds out how the server counts prompts, so that a prompt has the length that was asked for."
        )
    bursts = {name: _errors(pairs[many]) for name, pairs in costs.items()}
    better = [name for name, values in bursts.items() if values and bursts[OURS] and max(values) < min(bursts[OURS])]
    worse = [name for name, values in bursts.items() if values and bursts[OURS] and min(values) > max(bursts[OURS])]
    yield (
        f"- TTFT of a burst of {many}: closer to the truth than ours: {', '.join(better) or 'none'}; "
        f"further from it: {', '.join(worse) or 'none'}."
    )


def _errors(pairs: Sequence[Pair]) -> list[float]:
    return [abs(pair.ttft_error_ms) for pair in pairs if pair.ttft_error_ms is not None]


def _verdicts(pairs: Mapping[str, Sequence[Pair]], figure: Callable[[Pair], float]) -> str:
    """Whom ours is cheaper than, dearer than, and not told apart from."""
    ours = [figure(pair) for pair in pairs[OURS]]
    groups: dict[str, list[str]] = {"cheaper than": [], "not told apart from": [], "dearer than": []}
    for name, theirs in pairs.items():
        if name != OURS:
            groups[_compared(ours, [figure(pair) for pair in theirs])].append(name)
    num_others = len(pairs) - 1
    return ", ".join(
        f"{verdict} {'all others' if len(names) == num_others else ' and '.join(names)}"
        for verdict, names in groups.items()
        if names
    )


def _streams(load: Load) -> str:
    return f"{load.num_streams} stream{'s' if load.num_streams > 1 else ''}"


def _compared(ours: Sequence[float], theirs: Sequence[float]) -> str:
    if max(ours) < min(theirs):
        return "cheaper than"
    return "dearer than" if min(ours) > max(theirs) else "not told apart from"
