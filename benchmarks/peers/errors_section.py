"""Part `errors` as Markdown: the tables, and what they say and don't."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from .accuracy import (
    MAX_TPOT_ERROR_FRAC,
    MAX_TTFT_ERROR_S,
    Accuracy,
    Rerun,
    cold_ttft_s,
    tpot_error_frac,
    ttft_error_s,
)
from .client import Latency
from .page import OURS, doubted, named, row, rule
from .scenario import TIMING
from .trial import Trial


def errors_section(accuracies: Mapping[str, Accuracy], kept_cache: Rerun | str, taken: str) -> str:
    """Part `errors`."""
    return "\n".join(
        [
            "## Errors",
            "",
            taken,
            "",
            "One stream at a time, 96 tokens, 5 requests; 5 ms a token. Each cell: the median as reported. The truth "
            "is that of the client's own requests, shown for ours; the error is against its "
            f"own. **Bold**: TTFT off by more than {MAX_TTFT_ERROR_S * 1e3:.0f} ms, TPOT by more than "
            f"{MAX_TPOT_ERROR_FRAC:.0%}, or not reported.",
            "",
            *_timing_table(accuracies, "TTFT ms (error)", _ttft_cell, lambda trial: trial.ttft),
            "",
            *_timing_table(accuracies, "TPOT ms (error)", _tpot_cell, lambda trial: trial.tpot),
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
    truth: Callable[[Trial], Latency | None],
) -> Iterator[str]:
    yield row([title, "truth", *map(named, accuracies)])
    yield rule(2 + len(accuracies))
    for scenario in TIMING:
        ours = accuracies[OURS].timing[scenario.name]
        true = truth(ours) if isinstance(ours, Trial) else None
        cells = [cell(accuracy.timing[scenario.name]) for accuracy in accuracies.values()]
        yield row([scenario.name, "" if true is None else f"{true.median_s * 1e3:.2f}", *cells])


def _ttft_cell(trial: Trial | str) -> str:
    if isinstance(trial, str) or trial.reported is None:
        return "**no result**"
    error_s = ttft_error_s(trial)
    if error_s is None or trial.reported.ttft is None:
        return "**not reported**"
    return doubted(f"{trial.reported.ttft.median_s * 1e3:.1f} ({error_s * 1e3:+.1f})", not _is_ttft_right(trial))


def _tpot_cell(trial: Trial | str) -> str:
    if isinstance(trial, str) or trial.reported is None:
        return "**no result**"
    error_frac = tpot_error_frac(trial)
    if error_frac is None or trial.reported.tpot is None:
        return "**not reported**"
    return doubted(f"{trial.reported.tpot.median_s * 1e3:.2f} ({error_frac:+.1%})", not _is_tpot_right(trial))


def _is_ttft_right(trial: Trial | str) -> bool:
    error_s = None if isinstance(trial, str) else ttft_error_s(trial)
    return error_s is not None and abs(error_s) <= MAX_TTFT_ERROR_S


def _is_tpot_right(trial: Trial | str) -> bool:
    error_frac = None if isinstance(trial, str) else tpot_error_frac(trial)
    return error_frac is not None and abs(error_frac) <= MAX_TPOT_ERROR_FRAC


def _faults_table(accuracies: Mapping[str, Accuracy]) -> Iterator[str]:
    yield "An error object inside a 200 stream, after 24 of 48 tokens, on every third of 9 requests:"
    yield ""
    yield row(
        ["client", "in truth good / failed", "reported good / failed", "mean TPOT ms (error beside the good ones)"]
    )
    yield rule(4)
    for name, accuracy in accuracies.items():
        trial = accuracy.faults
        if isinstance(trial, str) or trial.reported is None:
            yield row([named(name), "", "**no result**", ""])
            continue
        failed = "not said" if trial.reported.num_failed is None else str(trial.reported.num_failed)
        yield row(
            [
                named(name),
                f"{len(trial.good)} / {len(trial.truths) - len(trial.good)}",
                doubted(f"{trial.reported.num_completed} / {failed}", not _are_faults_counted(trial)),
                _mean_tpot_cell(trial),
            ]
        )


def _mean_tpot_cell(trial: Trial) -> str:
    """The mean, since a median hides what a third of the requests did."""
    if trial.reported is None or trial.reported.tpot is None or trial.tpot is None:
        return "**not reported**"
    error_frac = trial.reported.tpot.mean_s / trial.tpot.mean_s - 1
    return doubted(
        f"{trial.reported.tpot.mean_s * 1e3:.2f} ({error_frac:+.1%})", abs(error_frac) > MAX_TPOT_ERROR_FRAC
    )


def _are_faults_counted(trial: Trial | str) -> bool:
    if isinstance(trial, str) or trial.reported is None:
        return False
    num_failed = len(trial.truths) - len(trial.good)
    return (trial.reported.num_completed, trial.reported.num_failed) == (len(trial.good), num_failed)


def _rerun_table(accuracies: Mapping[str, Accuracy], kept_cache: Rerun | str) -> Iterator[str]:
    yield (
        "The same command twice on a server with a prefix cache, prompts of 2,048 tokens as the client counts them, "
        "defaults left on. *Cold*: mean TTFT of these very prompts with nothing cached. *Cached*: the share of the "
        "prompts that the server took from its cache. **Bold**: faster than cold by over a tenth, and not a word."
    )
    yield ""
    yield row(["client", "cold ms", "run 1 mean TTFT ms", "cached", "run 2 ms", "cached", "what it says in run 2"])
    yield rule(7)
    rows = {name: accuracy.rerun for name, accuracy in accuracies.items()}
    rows[f"{OURS} --keep-cache"] = kept_cache
    for name, rerun in rows.items():
        if isinstance(rerun, str) or rerun.second.reported is None:
            yield row([named(name), "**no result**", "", "", "", "", ""])
            continue
        remark = rerun.second.reported.cache_remark or "nothing"
        cells = [
            *_cached_cells(rerun.first),
            *_cached_cells(rerun.second),
        ]
        yield row([named(name), f"{cold_ttft_s(rerun.second) * 1e3:.0f}", *cells, remark.replace("|", "/")])


def _cached_cells(trial: Trial) -> tuple[str, str]:
    """TTFT as reported, and what was cached in truth."""
    cached = f"{trial.cached_frac:.0%}"
    if trial.reported is None or trial.reported.ttft is None:
        return "not reported", cached
    mean_s, remark = trial.reported.ttft.mean_s, trial.reported.cache_remark or ""
    is_misled = mean_s < 0.9 * cold_ttft_s(trial) and not _is_warning(remark)
    return doubted(f"{mean_s * 1e3:.0f}", is_misled), cached


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
