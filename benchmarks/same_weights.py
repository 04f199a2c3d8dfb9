"""Plain prefill and decode beside others on the same weights, once more, in one command.

    python -m benchmarks.same_weights                        # 10 to 12 minutes on two quiet cores; prints Markdown
    python -m benchmarks.same_weights --only transformers    # 5 minutes;  --only llamacpp: 5 to 6

The embedded model against transformers in one process (`benchmarks.forward`), at 1k, 8k and 32k tokens; SmolLM2-135M
over HTTP against llama.cpp with the same values in float32 (`benchmarks.serving`), at 1k and nearly 8k, since it was
made for 8,192 tokens. Both in turns. Aims: ahead of transformers at every length; within 1.5 times of llama.cpp at
the same precision.

Leaves out: `transformers serve`, and llama.cpp with the file as it ships (`python -m benchmarks.serving`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks import forward
from benchmarks.serving.__main__ import OURS, section, smollm2_race
from benchmarks.serving.race import Pace, Speed, speeds
from deepdraft.embedded.spec import num_cores
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.kernels.select import AUTO
from deepdraft.units import token_counts

PARTS = ("transformers", "llamacpp")
MAX_BEHIND_LLAMACPP = 1.5


def main() -> int:
    """Measure and print the sections."""
    options = _options()
    started_s = time.monotonic()
    if "transformers" in options.only:
        for line in _transformers(options):
            print(line, flush=True)
    if "llamacpp" in options.only:
        for line in _llamacpp(options):
            print(line, flush=True)
    print(f"\n{time.monotonic() - started_s:.0f} s")
    return 0


def _transformers(options: argparse.Namespace) -> Iterator[str]:
    torch.set_num_threads(options.threads)
    folder = embedded_model_path()
    yield "### The embedded model, beside transformers, in process\n"
    yield forward.head(folder)
    rounds, ours = forward.all_rounds(
        folder, token_counts(options.context_len), chunk_len=forward.CHUNK_LEN, backend=options.backend
    )
    yield from forward.table(rounds, ours)
    for name, ratio in zip(("prefill", "decode"), forward.least_ratios(rounds, ours), strict=True):
        yield f"\n- {name}: at least {ratio:.2f} times as fast; aim above 1: {_met(ratio > 1)}"


def _llamacpp(options: argparse.Namespace) -> Iterator[str]:
    pace = Pace(
        context_lens=token_counts(options.llamacpp_context_len),
        decode_len=options.decode_len,
        point_limit_s=options.point_limit,
    )
    with tempfile.TemporaryDirectory(prefix="deepdraft-same-weights-") as folder:
        race = smollm2_race(Path(folder), num_threads=options.threads, has_shipped=False)
        found = speeds(race, pace, Path(folder), _say)
    yield ""
    yield section(race, found)
    for figure in ("prefill_tok_s", "decode_tok_s"):
        ratio = _least_ratio(found, figure)
        if ratio is not None:
            verdict = _met(ratio >= 1 / MAX_BEHIND_LLAMACPP)
            yield f"- {figure}: at least {ratio:.2f} times llama.cpp's; aim {1 / MAX_BEHIND_LLAMACPP:.2f}: {verdict}"


def _least_ratio(found: Sequence[Speed], figure: str) -> float | None:
    """Ours over theirs of one round: the least of the lengths' medians."""
    medians = []
    for context_len in {speed.context_len for speed in found}:
        here = [speed for speed in found if speed.context_len == context_len]
        ours = {speed.round_index: getattr(speed, figure) for speed in here if speed.contender == OURS}
        theirs = {speed.round_index: getattr(speed, figure) for speed in here if speed.contender != OURS}
        shared = [index for index in ours if ours[index] and theirs.get(index)]
        if shared:
            medians.append(statistics.median(ours[index] / theirs[index] for index in shared))
    return min(medians, default=None)


def _met(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--context-len", default="1k,8k,32k", help="beside transformers (%(default)s)")
    parser.add_argument("--llamacpp-context-len", default="1k,8000", help="beside llama.cpp (%(default)s)")
    parser.add_argument("--decode-len", type=int, default=32, help="tokens to generate beside llama.cpp (32)")
    parser.add_argument(
        "--point-limit", type=float, default=190.0, help="seconds of llama.cpp's rounds at a length (190)"
    )
    parser.add_argument("--threads", type=int, default=num_cores(), help="of every side (all cores)")
    parser.add_argument("--backend", default=AUTO, help="of our attention (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
