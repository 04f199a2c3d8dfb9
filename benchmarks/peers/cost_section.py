"""Part `cost` as Markdown: the tables, and what they say and don't."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from .cost import LOADS, Costs, Pair
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
            "client's exit, so that what a client does with an event after the streams counts too.",
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
    heads = [f"{load.num_streams} streams, {load.events_s:.0f} events/s" for load in LOADS]
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
        ]
    )
    yield rule(5)
    for name, pairs in costs.items():
        errors = [pair.ttft_error_ms for pair in pairs[many] if pair.ttft_error_ms is not None]
        yield row(
            [
                named(name),
                spread([pair.fixed_cpu_s for pair in pairs[few]], ".2f"),
                spread([pair.beyond_streams_s for pair in pairs[few]], ".1f"),
                spread([pair.beyond_streams_s for pair in pairs[many]], ".1f"),
                spread(errors, "+.1f") if errors else "not said",
            ]
        )


def _cost_reading(costs: Costs) -> Iterator[str]:
    """What the figures say and what they don't: two ranges that overlap show no difference."""
    yield "Reading:"
    yield ""
    for load in LOADS:
        ours = [pair.to_end_us for pair in costs[OURS][load.num_streams]]
        groups: dict[str, list[str]] = {"cheaper than": [], "not told apart from": [], "dearer than": []}
        for name, pairs in costs.items():
            if name != OURS:
                groups[_compared(ours, [pair.to_end_us for pair in pairs[load.num_streams]])].append(name)
        text = "; ".join(f"{verdict} {', '.join(names)}" for verdict, names in groups.items() if names)
        yield f"- {load.num_streams} streams, an event to the end: ours is {text}."
    many = LOADS[-1].num_streams
    ours_us = statistics.median(pair.to_end_us for pair in costs[OURS][many])
    verdict = "met" if ours_us <= FLOOR_AIM_US else "missed"
    yield f"- The aim of {FLOOR_AIM_US:.0f} us an event at {many} streams: {verdict}, with {ours_us:.0f} us."
    few = LOADS[0].num_streams
    fixed = {name: statistics.median(pair.fixed_cpu_s for pair in pairs[few]) for name, pairs in costs.items()}
    others = ", ".join(f"{name} {value:.1f} s" for name, value in fixed.items() if name != OURS)
    yield f"- The fixed cost is what tells the clients apart: ours {fixed[OURS]:.2f} s; {others}."
    walls = {name: statistics.median(pair.beyond_streams_s for pair in pairs[few]) for name, pairs in costs.items()}
    slower = [name for name, value in walls.items() if name != OURS and value < walls[OURS]]
    if slower:
        yield (
            f"- Where we are worse: {walls[OURS]:.1f} s pass beside the streams, more than with {', '.join(slower)}. "
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


def _compared(ours: Sequence[float], theirs: Sequence[float]) -> str:
    if max(ours) < min(theirs):
        return "cheaper than"
    return "dearer than" if min(ours) > max(theirs) else "not told apart from"
