"""`--speculation auto` beside always and never, on simulated servers of random costs and drafters, from the first
token of a server's life on.

    python -m benchmarks.speculation_control                # 6 minutes; docs/decisions/0010-speculation-control.md

No clock and no model: seconds and drafts are drawn (`server`), each mode's anew, so that two runs of the same mode
differ by some per cent where times are noisy. Servers of a row are drawn from seeds 0, 1, 2, ...
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass

from deepdraft.infer.control.decision import SpeculationMode

from .server import Job, SimulatedServer, Truth, jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Of the table."""

    name: str
    num_servers: int
    num_requests: int
    num_tokens: int
    is_lookup: bool = False
    """A drafter that costs next to nothing and knows how sure it is."""


ROWS = (
    Row(name="a drafter that costs a pass", num_servers=60, num_requests=10, num_tokens=100),
    Row(name="a drafter that costs a pass", num_servers=60, num_requests=8, num_tokens=500),
    Row(name="a drafter that costs a pass", num_servers=30, num_requests=20, num_tokens=500),
    Row(name="prompt lookup", num_servers=60, num_requests=10, num_tokens=100, is_lookup=True),
    Row(name="prompt lookup", num_servers=60, num_requests=8, num_tokens=500, is_lookup=True),
)
_BUDGET = 16


def main() -> int:
    """Print the table. Returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, help="of each row (60 or 30)")
    options = parser.parse_args()
    figures = ("auto / never: least, 5 %, median", "auto / better: least, 5 %, 10 %, mean")
    print("| drafter | servers | requests, tokens |", " | ".join(figures), "|")
    print("|---|--:|--:|---|---|")
    for row in ROWS:
        print(_line(row, options.servers or row.num_servers), flush=True)
    return 0


def _line(row: Row, num_servers: int) -> str:
    never, better = [], []
    for seed in range(num_servers):
        rates = {mode: _rate(row, seed, mode) for mode in ("never", "always", "auto")}
        never.append(rates["auto"] / rates["never"])
        better.append(rates["auto"] / max(rates["never"], rates["always"]))
        print(f"{row.name}, server {seed + 1} of {num_servers}", end="\r", file=sys.stderr)
    of_never = ", ".join(f"{_quantile(never, part):.3f}" for part in (0.0, 0.05, 0.5))
    of_better = ", ".join(f"{_quantile(better, part):.3f}" for part in (0.0, 0.05, 0.1))
    mean = sum(better) / len(better)
    asked = f"{row.num_requests} of {row.num_tokens}"
    return f"| {row.name} | {num_servers} | {asked} | {of_never} | {of_better}, {mean:.3f} |"


def _rate(row: Row, seed: int, mode: SpeculationMode) -> float:
    drawn = random.Random(seed)
    plain_s = 0.005
    frac_of_whole = drawn.uniform(0.0, 4.0)
    first_frac = drawn.uniform(0.0, min(1.0, frac_of_whole))
    truth = Truth(
        plain_s=plain_s,
        kv_s=0.0,
        row_frac=(frac_of_whole - first_frac) / _BUDGET,
        first_row_frac=first_frac,
        draft_s=plain_s * (drawn.uniform(0.005, 0.04) if row.is_lookup else drawn.uniform(0.06, 1.2)),
        noise_frac=drawn.uniform(0.0, 0.15),
        outlier_frac=drawn.choice([0.0, 0.02]),
    )
    asked = jobs(
        row.num_requests,
        num_tokens=row.num_tokens,
        confidence=drawn.uniform(0.2, 0.9),
        honesty=1.0 if row.is_lookup else drawn.choice([0.4, 0.7, 1.0]),
        found_frac=drawn.uniform(0.2, 1.0) if row.is_lookup else 1.0,
        is_calibrated=row.is_lookup,
        change=_repeating(drawn.uniform(0.0, 0.6), random.Random(seed)) if row.is_lookup else None,
    )
    return SimulatedServer(truth, mode, seed=seed).run(asked).rate


def _repeating(frac: float, drawn: random.Random) -> Callable[[Job], None]:
    """Stretches of about thirty tokens in which drafts are nearly certain, among others where they are chance."""
    until: dict[str, int] = {}

    def change(job: Job) -> None:
        if job.num_done >= until.get(job.request_id, 0):
            until[job.request_id] = job.num_done + drawn.randint(10, 50)
            job.confidence = 0.96 if drawn.random() < frac else 0.15

    return change


def _quantile(values: list[float], part: float) -> float:
    return sorted(values)[round(part * (len(values) - 1))]


if __name__ == "__main__":
    sys.exit(main())
