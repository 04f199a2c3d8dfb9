"""How often the stated 95 % intervals hold the truth: seeded sweeps, over HTTP, of simulated servers with known laws.

    python -m benchmarks.law_coverage --sweeps 100 --results coverage.jsonl        # 20 minutes

Each sweep goes to two servers, one after the other, whose decode laws cross at a known length. Counted are the
quadratic coefficient of prefill, the slope of decode, and the crossover. Intercepts are left out: what a client sees
of them holds the network and the client.

The two servers draw their noise apart: with the same draws it would cancel in their ratio. Each sweep that runs
beside another has a process of its own: sweeps in threads of one process wait for each other, up to 50 ms at a time,
and the client_lag guard then rightly leaves every point out of the crossover. Where other work on the machine does
the same, the sweep says of itself that its points are in doubt, and is done again in the end, with the same noise.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import dataclasses
import functools
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.peers.machine import machine
from deepdraft.bench.progress import Progress
from deepdraft.bench.sweep import sweep
from deepdraft.compare.comparison import Comparison, compare_runs
from deepdraft.guards import guards_of
from deepdraft.metrics import points_of
from deepdraft.metrics.observed import observed_of
from deepdraft.records import Run, SweepSpec
from deepdraft.simulate.process import running
from deepdraft.simulate.spec import Physics, SimulateSpec
from deepdraft.stats.crossover import Crossover
from deepdraft.stats.interval import CannotTell, Estimate
from deepdraft.stats.law import LinearLaw, QuadraticLaw, linear_law, quadratic_law
from deepdraft.stats.observed import Observed
from deepdraft.transport.tls import TlsOptions

LENGTHS = (250, 500, 1_000, 2_000, 4_000)
DECODE_LEN = 8
PLAIN = Physics(prefill_a_s=0.01, prefill_b_s=1e-5, prefill_c_s=1e-8, step_d_s=0.020, step_e_s=4e-6, noise_frac=0.02)
OTHER = dataclasses.replace(PLAIN, step_d_s=0.012, step_e_s=9e-6)
CROSSOVER_LEN = (PLAIN.step_d_s - OTHER.step_d_s) / (OTHER.step_e_s - PLAIN.step_e_s) - (DECODE_LEN - 2) / 2
"""Of the prompt: while an answer is made the context is half of the steps longer."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one sweep says of one truth."""

    seed: int
    name: str
    verdict: str
    """covered, missed, cannot tell"""
    half_width_frac: float | None = None
    """Of the interval, as a share of the truth."""
    reason: str | None = None
    """Why it can't tell."""
    is_in_doubt: bool = False
    """It can't tell, and points were left out because the guards speak against them."""
    num_tries: int = 1


def main() -> int:
    """Run the sweeps that the results don't hold yet, and print what was covered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=1, help="each with a process of its own")
    parser.add_argument("--tries", type=int, default=3, help="of a sweep that is in doubt")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="keep answers there, and go on from those it holds"
    )
    options = parser.parse_args()
    swept = _kept(options.results, options.sweeps)
    for num_tries in range(1, options.tries + 1):
        seeds = [seed for seed in range(options.sweeps) if _is_wanted(swept.get(seed, []), num_tries)]
        for found in _in_processes(functools.partial(answers_of, num_tries=num_tries), seeds, options.at_once):
            swept[found[0].seed] = found
            if options.results is not None:
                with options.results.open("ab") as file:
                    file.writelines(msgspec.json.encode(answer) + b"\n" for answer in found)
            said = ", ".join(f"{answer.name} {answer.verdict}" for answer in found)
            print(f"[{len(swept)}/{options.sweeps}] try {num_tries}: {said}", file=sys.stderr, flush=True)
    print(markdown([answer for seed in sorted(swept) for answer in swept[seed]], machine()))
    return 0


def _is_wanted(answers: Sequence[Answer], num_tries: int) -> bool:
    """Whether the sweep is to be done for the `num_tries`th time."""
    if not answers:
        return num_tries == 1
    return answers[0].num_tries == num_tries - 1 and any(answer.is_in_doubt for answer in answers)


def _kept(path: Path | None, num_sweeps: int) -> dict[int, list[Answer]]:
    """By seed: the answers of the latest try."""
    found: dict[int, list[Answer]] = {}
    if path is None or not path.exists():
        return found
    for line in path.read_bytes().splitlines():
        answer = msgspec.json.decode(line, type=Answer)
        if answer.seed >= num_sweeps:
            continue
        if answer.seed in found and found[answer.seed][0].num_tries == answer.num_tries:
            found[answer.seed].append(answer)
        else:
            found[answer.seed] = [answer]
    return found


def _in_processes(
    measure: Callable[[int], list[Answer]], seeds: Iterable[int], num_at_once: int
) -> Iterator[list[Answer]]:
    """In the order in which they end."""
    spawning = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(num_at_once, mp_context=spawning) as pool:
        for future in concurrent.futures.as_completed([pool.submit(measure, seed) for seed in seeds]):
            yield future.result()


def answers_of(seed: int, *, num_tries: int) -> list[Answer]:
    """One sweep of each server."""
    plain = _run(dataclasses.replace(PLAIN, seed=2 * seed))
    other = _run(dataclasses.replace(OTHER, seed=2 * seed + 1))
    answer = functools.partial(_answer, Answer(seed=seed, name="", verdict="cannot tell", num_tries=num_tries))
    ttfts, tpots = (_observed(plain, figure) for figure in ("ttft_s", "tpot_s"))
    prefill, decode = quadratic_law(ttfts), linear_law(tpots)
    comparison = compare_runs(plain, other)
    crossed = comparison.crossover
    return [
        answer(
            "prefill c",
            PLAIN.prefill_c_s,
            prefill.c if isinstance(prefill, QuadraticLaw) else None,
            reason=prefill.reason if isinstance(prefill, CannotTell) else None,
            is_in_doubt=len(ttfts) < len(LENGTHS),
        ),
        answer(
            "decode slope",
            PLAIN.step_e_s,
            decode.slope if isinstance(decode, LinearLaw) else None,
            reason=decode.reason if isinstance(decode, CannotTell) else None,
            is_in_doubt=len(tpots) < len(LENGTHS),
        ),
        answer(
            "crossover",
            CROSSOVER_LEN,
            crossed.len if isinstance(crossed, Crossover) else None,
            reason=_reason(comparison),
            is_in_doubt=bool(comparison.left_out),
        ),
    ]


def _observed(run: Run, figure: str) -> tuple[Observed, ...]:
    """As the report has it: without the points at which a guard speaks against the figure."""
    points = points_of(run)
    return observed_of(
        [
            point
            for point in points
            if not any(
                report.state == "violated" and figure in report.doubts for report in guards_of(run, point, points)
            )
        ],
        figure,
    )


def _answer(
    blank: Answer,
    name: str,
    truth: float,
    estimate: Estimate | None,
    *,
    reason: str | None = None,
    is_in_doubt: bool = False,
) -> Answer:
    blank = msgspec.structs.replace(blank, name=name)
    if estimate is None or estimate.interval is None:
        return msgspec.structs.replace(blank, reason=reason, is_in_doubt=is_in_doubt)
    low, high = estimate.interval.low, estimate.interval.high
    return msgspec.structs.replace(
        blank,
        verdict="covered" if low <= truth <= high else "missed",
        half_width_frac=(high - low) / 2 / truth,
    )


def _reason(comparison: Comparison) -> str | None:
    crossed = comparison.crossover
    if isinstance(crossed, Crossover):
        return None
    left_out = f"; in doubt: {', '.join(map(str, comparison.left_out))}" if comparison.left_out else ""
    return (crossed.reason if isinstance(crossed, CannotTell) else "no crossover") + left_out


def markdown(answers: Sequence[Answer], where: str) -> str:
    """A table of the counts, the reasons below it."""
    num_again = len({answer.seed for answer in answers if answer.num_tries > 1})
    lines = [
        f"{len({answer.seed for answer in answers})} sweeps, {where}; {num_again} done again, being in doubt",
        "",
        "| truth | covered | missed | cannot tell | half width of the interval, median |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(answer.name for answer in answers):
        own = [answer for answer in answers if answer.name == name]
        counts = [
            sum(answer.verdict == verdict for answer in own) for verdict in ("covered", "missed", "cannot tell")
        ]
        widths = [answer.half_width_frac for answer in own if answer.half_width_frac is not None]
        width = f"{100 * statistics.median(widths):.0f} %" if widths else "-"
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {width} |")
    reasons = [f"- sweep {answer.seed}, {answer.name}: {answer.reason}" for answer in answers if answer.reason]
    return "\n".join([*lines, *([""] if reasons else []), *reasons])


def _run(physics: Physics) -> Run:
    with tempfile.TemporaryDirectory() as folder, running(SimulateSpec(dialect="vllm", physics=physics)) as server:
        outcome = asyncio.run(
            sweep(
                SweepSpec(url=server.url, context_lens=LENGTHS, decode_len=DECODE_LEN),
                url=server.url,
                path=Path(folder) / "run.jsonl",
                is_resumed=False,
                headers={},
                admin_headers={},
                tls=TlsOptions(),
                progress=Progress(num_trials=0, stream=None),
                command_line=("benchmarks.law_coverage",),
            )
        )
    if outcome.run is None or outcome.problem is not None:
        raise outcome.problem or RuntimeError("no results")
    return outcome.run


if __name__ == "__main__":
    sys.exit(main())
