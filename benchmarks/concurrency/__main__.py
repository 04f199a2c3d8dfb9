"""Throughput of `deepdraft serve` with the embedded model over HTTP, 1 to 16 requests at once, speculation never and
automatic.

    python -m benchmarks.concurrency --folder build/concurrency             # 7 minutes; prints Markdown
    python -m benchmarks.concurrency --folder build/concurrency --only table

Two servers, up at once, measured in turns by `deepdraft compare --run` (A B, then B A). All requests of a repeat are
sent at once, each with a cold prompt of its own, so the throughput holds prefill too: what decode alone gives, is in
the times a token. Client and servers share the machine. Writes throughput.svg beside the results files: the chart
that `deepdraft report` makes of them.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peers.machine import machine
from deepdraft.guards import guards_of
from deepdraft.metrics import Point, output_tok_s, points_of
from deepdraft.records import Run
from deepdraft.records.file import read_run
from deepdraft.report.chart_concurrency import throughput_chart
from deepdraft.report.plot import plot_bytes
from deepdraft.report.subject import Subject
from deepdraft.stats.ratio import paired_ratio

SERVERS = {
    "never": "embedded --drafter embedded --speculation never",
    "auto": "embedded --drafter embedded --speculation auto",
}
PARTS = ("measure", "table")


def main() -> int:
    """Measure, print the table and draw the chart. Returns the exit code."""
    options = _options()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    servers = dict(text.split("=", 1) for text in options.server) if options.server else SERVERS
    if "measure" in options.only:
        code = subprocess.run(_words(options, list(servers.values()))).returncode
        if code:
            return code
    runs = {name: read_run(_path(folder, place)) for place, name in enumerate(servers)}
    print("\n".join(_page(runs)))
    chart = throughput_chart([Subject(name=name, run=run) for name, run in runs.items()])
    if chart is not None:
        (folder / "throughput.svg").write_bytes(plot_bytes([chart], "svg", "deepdraft serve, the embedded model"))
    return 0


def _words(options: argparse.Namespace, servers: Sequence[str]) -> list[str]:
    """The command that measures. Its own table goes to standard error, with its progress."""
    return [
        *(
            sys.executable,
            "-c",
            "import sys; sys.stdout = sys.stderr; from deepdraft.cli.main import main; sys.exit(main())",
        ),
        *("compare", "--run", *servers, "--out", str(options.folder / "throughput")),
        *("--context-len", options.context_len, "--concurrency", options.concurrency, "--text", options.text),
        *("--decode-len", str(options.decode_len), "--repeats", str(options.repeats)),
    ]


def _path(folder: Path, place: int) -> Path:
    return folder / f"throughput-{'abcdefgh'[place]}.jsonl"


def _page(runs: dict[str, Run]) -> Iterator[str]:
    points = {name: {point.key: point for point in points_of(run)} for name, run in runs.items()}
    first, *others = runs
    yield (
        f"Taken on {datetime.date.today().isoformat()}, {machine()}. {' '.join(runs[first].header.command_line)}\n"
    )
    yield "Medians over the repeats. Ratio: output tok/s, repeat by repeat [95 %].\n"
    heads = ["context", "at once"]
    heads += [f"output tok/s, {name}" for name in runs]
    heads += [f"{name} / {first}" for name in others]
    heads += [f"ms a token, {name}" for name in runs]
    heads += [f"TTFT s, {name}" for name in runs]
    heads += [f"tokens a step, {name}" for name in others]
    yield _row(*heads)
    yield _row(*("--:" for _ in heads))
    for key in sorted(points[first]):
        known = {name: points[name].get(key) for name in runs}
        cells = [f"{key[0]:,}", str(key[1])]
        cells += [_median(known[name], "output_tok_s", 1, ".1f") for name in runs]
        cells += [_ratio(known[first], known[name]) for name in others]
        cells += [_median(known[name], "tpot_s", 1e3, ".2f") for name in runs]
        cells += [_median(known[name], "ttft_s", 1, ".2f") for name in runs]
        cells += [_median(known[name], "tokens_per_step", 1, ".2f") for name in others]
        yield _row(*cells)
    yield ""
    for name, run in runs.items():
        for point in points[name].values():
            told = [report for report in guards_of(run, point) if report.state == "violated"]
            for report in told:
                yield f"- {name}, {point.asked_context_len:,} x {point.concurrency}: {report.name}: {report.evidence}"


def _median(point: Point | None, figure: str, factor: float, form: str) -> str:
    known = point.summary(figure) if point is not None else None
    return f"{known.median * factor:{form}}" if known is not None else "-"


def _ratio(before: Point | None, after: Point | None) -> str:
    if before is None or after is None:
        return "-"
    one, other = _repeats(before), _repeats(after)
    shared = sorted(one.keys() & other.keys())
    if not shared:
        return "-"
    ratio = paired_ratio([one[index] for index in shared], [other[index] for index in shared])
    interval = f" [{ratio.interval.low:.2f} - {ratio.interval.high:.2f}]" if ratio.interval is not None else ""
    return f"{ratio.value:.2f}{interval}"


def _repeats(point: Point) -> dict[int, float]:
    """Throughput of each whole repeat, by its index."""
    rates = {each.trial.repeat_index: output_tok_s(each.measured) for each in point.trials if each.trial is not None}
    return {index: rate for index, rate in rates.items() if rate is not None}


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/concurrency"), help="results (%(default)s)")
    parser.add_argument("--context-len", default="1k,8k")
    parser.add_argument("--concurrency", default="1,2,4,8,16")
    parser.add_argument("--decode-len", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--text", default="code")
    parser.add_argument(
        "--server",
        action="append",
        metavar="NAME=SERVER",
        help="in place of never and auto; repeated, baseline first",
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
