"""How often the stated 95 % intervals hold the truth: seeded sweeps, over HTTP, of simulated servers with known laws.

    python -m benchmarks.law_coverage --sweeps 100        # 6 minutes

Each sweep goes to two servers, plain and drafting, whose decode laws cross at a known length. Counted are the
quadratic coefficient of prefill, the slope of decode, and the crossover. Intercepts are left out: what a client sees
of them holds the network and the client.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import dataclasses
import sys
import tempfile
from collections import Counter
from pathlib import Path

from deepdraft.bench.progress import Progress
from deepdraft.bench.sweep import sweep
from deepdraft.compare.comparison import compare_runs
from deepdraft.metrics import points_of
from deepdraft.metrics.observed import observed_of
from deepdraft.records import Run, SweepSpec
from deepdraft.simulate.process import running
from deepdraft.simulate.spec import Physics, SimulateSpec
from deepdraft.stats.crossover import Crossover
from deepdraft.stats.law import LinearLaw, QuadraticLaw, linear_law, quadratic_law
from deepdraft.transport.tls import TlsOptions

LENGTHS = (250, 500, 1_000, 2_000, 4_000)
PLAIN = Physics(prefill_a_s=0.02, prefill_b_s=2e-5, prefill_c_s=2e-8, step_d_s=0.020, step_e_s=4e-6, noise_frac=0.02)
OTHER = dataclasses.replace(PLAIN, step_d_s=0.012, step_e_s=9e-6)
CROSSOVER_LEN = (PLAIN.step_d_s - OTHER.step_d_s) / (OTHER.step_e_s - PLAIN.step_e_s)


def main() -> int:
    """Run the sweeps and print what was covered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=6)
    options = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        answers = list(pool.map(_answers, range(options.sweeps)))
    counts = Counter((name, verdict) for answer in answers for name, verdict in answer.items())
    for (name, verdict), count in sorted(counts.items()):
        print(f"{name}: {verdict} in {count} of {options.sweeps}")
    return 0


def _answers(seed: int) -> dict[str, str]:
    plain, other = (_run(dataclasses.replace(physics, seed=seed)) for physics in (PLAIN, OTHER))
    prefill = quadratic_law(observed_of(points_of(plain), "ttft_s"))
    decode = linear_law(observed_of(points_of(plain), "tpot_s"))
    found = {"prefill c": "cannot tell", "decode slope": "cannot tell", "crossover": "cannot tell"}
    if isinstance(prefill, QuadraticLaw) and prefill.c.interval is not None:
        found["prefill c"] = _verdict(prefill.c.interval.low, PLAIN.prefill_c_s, prefill.c.interval.high)
    if isinstance(decode, LinearLaw) and decode.slope.interval is not None:
        found["decode slope"] = _verdict(decode.slope.interval.low, PLAIN.step_e_s, decode.slope.interval.high)
    crossed = compare_runs(plain, other).crossover
    if isinstance(crossed, Crossover) and crossed.len.interval is not None:
        found["crossover"] = _verdict(crossed.len.interval.low, CROSSOVER_LEN, crossed.len.interval.high)
    print(seed, found, file=sys.stderr, flush=True)
    return found


def _verdict(low: float, truth: float, high: float) -> str:
    return "covered" if low <= truth <= high else "missed"


def _run(physics: Physics) -> Run:
    with tempfile.TemporaryDirectory() as folder, running(SimulateSpec(dialect="vllm", physics=physics)) as server:
        outcome = asyncio.run(
            sweep(
                SweepSpec(url=server.url, context_lens=LENGTHS, decode_len=8),
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
