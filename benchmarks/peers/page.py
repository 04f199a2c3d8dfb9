"""The figures as Markdown: one section a part, each with the day and the machine it was taken on.

A section stands between two marks in the page, so that a part that is run again replaces its own and no other.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from .accuracy import MAX_TPOT_ERROR_FRAC, MAX_TTFT_ERROR_S, Accuracy, Rerun, tpot_error_frac, ttft_error_s
from .client import Deepdraft
from .cost import LOADS, Costs, Pair
from .rate import MAX_LAG_S, Kept
from .scenario import TIMING
from .trial import Trial

OURS = Deepdraft().name
FLOOR_AIM_US = 75.0
_HEAD = """\
# What the client costs and what it gets wrong, beside its peers

Written by `python -m benchmarks.peers --write`; `benchmarks/README.md` says how to run it. Every client runs as a
whole process, as its users run it, against the same server of known truth (`deepdraft simulate`) on the same machine;
the truth is the server's own stamps of the same requests, so the server's jitter is nobody's error.
"""


def updated(page: str, sections: Mapping[str, str]) -> str:
    """The page with these sections put in the place of their earlier selves, or behind the others."""
    page = page or _HEAD
    for part, text in sections.items():
        begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
        section = f"{begin}\n{text.strip()}\n{end}"
        if begin in page:
            before, after = page[: page.index(begin)], page[page.index(end) + len(end) :]
            page = before + section + after
        else:
            page = f"{page.rstrip()}\n\n{section}\n"
    return page


# --- cost


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
    yield _row([title, *heads])
    yield _rule(1 + len(heads))
    for name, pairs in costs.items():
        yield _row([_named(name), *(_range([figure(pair) for pair in pairs[load.num_streams]]) for load in LOADS)])


def _fixed_table(costs: Costs) -> Iterator[str]:
    few, many = LOADS[0].num_streams, LOADS[-1].num_streams
    yield _row(
        [
            "client",
            "CPU s of one request of 64 tokens, all in",
            f"wall s beside the streams, {few} stream",
            f"wall s beside the streams, {many} streams",
            f"TTFT error ms, {many} starting at once",
        ]
    )
    yield _rule(5)
    for name, pairs in costs.items():
        errors = [pair.ttft_error_ms for pair in pairs[many] if pair.ttft_error_ms is not None]
        yield _row(
            [
                _named(name),
                _range([pair.fixed_cpu_s for pair in pairs[few]], ".2f"),
                _range([pair.beyond_streams_s for pair in pairs[few]], ".1f"),
                _range([pair.beyond_streams_s for pair in pairs[many]], ".1f"),
                _range(errors, "+.1f") if errors else "not said",
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


# --- errors


def errors_section(accuracies: Mapping[str, Accuracy], kept_cache: Rerun | str, taken: str) -> str:
    """Part `errors`."""
    return "\n".join(
        [
            "## Errors",
            "",
            taken,
            "",
            "One stream at a time, 96 tokens, 4 requests; 5 ms a token. Each cell: what the client reports. The truth "
            "is that of the client's own requests (mean, as its figure is), shown for ours; the error is against its "
            f"own. **Bold**: TTFT off by more than {MAX_TTFT_ERROR_S * 1e3:.0f} ms, TPOT by more than "
            f"{MAX_TPOT_ERROR_FRAC:.0%}, or not reported.",
            "",
            *_timing_table(accuracies, "TTFT ms (error)", _ttft_cell, lambda trial: trial.ttft_s),
            "",
            *_timing_table(accuracies, "TPOT ms (error)", _tpot_cell, lambda trial: trial.tpot_s),
            "",
            *_faults_table(accuracies),
            "",
            *_rerun_table(accuracies, kept_cache),
            "",
            *_errors_reading(accuracies),
        ]
    )


def _timing_table(
    accuracies: Mapping[str, Accuracy],
    title: str,
    cell: Callable[[Trial | str], str],
    truth: Callable[[Trial], float | None],
) -> Iterator[str]:
    yield _row([title, "truth", *map(_named, accuracies)])
    yield _rule(2 + len(accuracies))
    for scenario in TIMING:
        ours = accuracies[OURS].timing[scenario.name]
        true_s = truth(ours) if isinstance(ours, Trial) else None
        cells = [cell(accuracy.timing[scenario.name]) for accuracy in accuracies.values()]
        yield _row([scenario.name, "" if true_s is None else f"{true_s * 1e3:.2f}", *cells])


def _ttft_cell(trial: Trial | str) -> str:
    if isinstance(trial, str) or trial.reported is None:
        return "**no result**"
    error_s = ttft_error_s(trial)
    if error_s is None or trial.reported.ttft_s is None:
        return "**not reported**"
    return _doubted(f"{trial.reported.ttft_s * 1e3:.1f} ({error_s * 1e3:+.1f})", not _is_ttft_right(trial))


def _tpot_cell(trial: Trial | str) -> str:
    if isinstance(trial, str) or trial.reported is None:
        return "**no result**"
    error_frac = tpot_error_frac(trial)
    if error_frac is None or trial.reported.tpot_s is None:
        return "**not reported**"
    return _doubted(f"{trial.reported.tpot_s * 1e3:.2f} ({error_frac:+.1%})", not _is_tpot_right(trial))


def _is_ttft_right(trial: Trial | str) -> bool:
    error_s = None if isinstance(trial, str) else ttft_error_s(trial)
    return error_s is not None and abs(error_s) <= MAX_TTFT_ERROR_S


def _is_tpot_right(trial: Trial | str) -> bool:
    error_frac = None if isinstance(trial, str) else tpot_error_frac(trial)
    return error_frac is not None and abs(error_frac) <= MAX_TPOT_ERROR_FRAC


def _faults_table(accuracies: Mapping[str, Accuracy]) -> Iterator[str]:
    yield "An error object inside a 200 stream, after 24 of 48 tokens, on every third of 9 requests:"
    yield ""
    yield _row(["client", "in truth good / failed", "reported good / failed", "TPOT ms (error beside the good ones)"])
    yield _rule(4)
    for name, accuracy in accuracies.items():
        trial = accuracy.faults
        if isinstance(trial, str) or trial.reported is None:
            yield _row([_named(name), "", "**no result**", ""])
            continue
        failed = "not said" if trial.reported.num_failed is None else str(trial.reported.num_failed)
        yield _row(
            [
                _named(name),
                f"{len(trial.good)} / {len(trial.truths) - len(trial.good)}",
                _doubted(f"{trial.reported.num_completed} / {failed}", not _are_faults_counted(trial)),
                _tpot_cell(trial),
            ]
        )


def _are_faults_counted(trial: Trial | str) -> bool:
    if isinstance(trial, str) or trial.reported is None:
        return False
    num_failed = len(trial.truths) - len(trial.good)
    return (trial.reported.num_completed, trial.reported.num_failed) == (len(trial.good), num_failed)


def _rerun_table(accuracies: Mapping[str, Accuracy], kept_cache: Rerun | str) -> Iterator[str]:
    yield (
        "The same command twice on a server with a prefix cache (2,048 tokens, 538 ms cold), defaults left on. "
        "*Cached*: the share of the prompts that the server really took from its cache."
    )
    yield ""
    yield _row(["client", "run 1 TTFT ms", "cached", "run 2 TTFT ms", "cached", "what it says of it in run 2"])
    yield _rule(6)
    rows = {name: accuracy.rerun for name, accuracy in accuracies.items()}
    rows[f"{OURS} --keep-cache"] = kept_cache
    for name, rerun in rows.items():
        if isinstance(rerun, str) or rerun.first.reported is None or rerun.second.reported is None:
            yield _row([_named(name), "**no result**", "", "", "", ""])
            continue
        remark = rerun.second.reported.cache_remark or "nothing"
        is_misled = rerun.second.cached_frac > 0.1 and not _is_warning(remark)
        cells = []
        for trial in (rerun.first, rerun.second):
            ttft_s = trial.reported.ttft_s if trial.reported is not None else None
            cells += ["not reported" if ttft_s is None else f"{ttft_s * 1e3:.0f}", f"{trial.cached_frac:.0%}"]
        cells[2] = _doubted(cells[2], is_misled)
        yield _row([_named(name), *cells, remark.replace("|", "/")])


def _is_warning(remark: str) -> bool:
    return "violated" in remark or "warn" in remark.lower()


def _errors_reading(accuracies: Mapping[str, Accuracy]) -> Iterator[str]:
    yield "Reading:"
    yield ""
    for name, accuracy in accuracies.items():
        trials = list(accuracy.timing.values())
        num_ttft, num_tpot = sum(map(_is_ttft_right, trials)), sum(map(_is_tpot_right, trials))
        faults = "all failures counted" if _are_faults_counted(accuracy.faults) else "failures not counted"
        yield f"- {name}: TTFT right in {num_ttft} of {len(trials)}, TPOT in {num_tpot} of {len(trials)}; {faults}."


# --- rate


def rate_section(rates: Sequence[Kept], taken: str) -> str:
    """Part `rate`."""
    kept = [rate.events_s for rate in rates if rate.is_kept]
    guarded = [rate.events_s for rate in rates if rate.guard == "verified"]
    best = f"{max(kept):,.0f} events/s" if kept else "none of these loads"
    best_guarded = f"up to {max(guarded):,.0f} events/s" if guarded else "at none of these loads"
    return "\n".join(
        [
            "## Rate",
            "",
            taken,
            "",
            f"The largest rate our client kept up with, 99 % of its stamps within {MAX_LAG_S * 1e3:.0f} ms of the "
            f"server's own: **{best}**. Its guard `client_lag` was content {best_guarded}; it looks at the worst "
            "moment rather than at 99 %. The server runs on the other core: where it writes late, or its core is "
            "full, it is the bound and not the client.",
            "",
            _row(
                [
                    "streams",
                    "events/s asked",
                    "written",
                    "client's lag ms, median",
                    "p99",
                    "guard client_lag",
                    "client, of a core",
                    "server, of a core",
                    "server late ms, p99",
                ]
            ),
            _rule(9),
            *(
                _row(
                    [
                        str(rate.num_streams),
                        f"{rate.asked_events_s:,.0f}",
                        f"{rate.events_s:,.0f}",
                        f"{rate.lag_median_s * 1e3:.2f}",
                        _doubted(f"{rate.lag_p99_s * 1e3:.2f}", not rate.is_kept),
                        rate.guard,
                        f"{rate.client_cpu_frac:.0%}",
                        f"{rate.server_cpu_frac:.0%}",
                        f"{rate.server_late_p99_s * 1e3:.1f}",
                    ]
                )
                for rate in rates
            ),
        ]
    )


def write(path: Path, sections: Mapping[str, str]) -> None:
    """Put the sections into the page, which need not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(updated(path.read_text() if path.exists() else "", sections))


# --- words


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(num_columns: int) -> str:
    return "|" + "---|" * num_columns


def _range(values: Sequence[float], form: str = ".0f") -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def _doubted(text: str, is_wrong: bool) -> str:
    return f"**{text}**" if is_wrong else text


def _named(name: str) -> str:
    return f"`{name}`"
