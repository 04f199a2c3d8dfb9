"""The native back end of attention beside what this machine can do, and beside the torch back end: the cases of
`deepdraft bench kernels` as one table, with the aims.

    python -m benchmarks.attention.native                 # 4 minutes on two quiet cores
        [--context-len 32k,128k] [--page-size 1,16,64] [--rows 1,8,16,64] [--dims kimi embedded]
        [--kv-dtype float32] [--threads N] [--repeats 5] [--cell-s 0.05]

One layer of latent attention of one request; rows are heads x tree nodes, all of which share each cached row. In a
repeat the back end, its peers and the machine's rates take turns (`infer.components.turns`); a figure is the median
over the repeats of that repeat's own. ms (share): of the least time that the machine allows, which is the KV bytes at
a plain copy's rate (read + write) or the multiplications at the rate of a float32 matrix product, whichever takes
longer. Pages are in random order; `page 1 / one run` is what pages of one token cost beside slots that follow each
other. torch: the torch back end over the same pages.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import median

import torch

from benchmarks.peers.machine import machine
from deepdraft.errors import DeepdraftError
from deepdraft.infer.components.kernels import DIMS, DTYPES, KernelSettings, kernel_cases
from deepdraft.infer.components.turns import DEFAULT_CELL_S, DEFAULT_NUM_REPEATS, Timing, Watch
from deepdraft.infer.kernels.native_backend import NativeAttention
from deepdraft.metrics.component import ceiling_name, peer_ratios, seconds_of, shares_frac
from deepdraft.records.component import ComponentCase
from deepdraft.units import token_counts, tokens_text

MIN_SHARE_FRAC = 0.70
MIN_TORCH_RATIO = 3.0


def main() -> int:
    """Print the tables as they come. Returns the exit code."""
    asked = _asked()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    started = time.monotonic()
    try:
        for line in _lines(asked):
            print(line, flush=True)
    except DeepdraftError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"\n{time.monotonic() - started:.0f} s")
    return 0


def _lines(asked: argparse.Namespace) -> Iterator[str]:
    yield (
        f"{machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads, "
        f"{NativeAttention().instruction_set}; medians of {asked.repeats} repeats"
    )
    page_sizes = token_counts(asked.page_size)
    cases: list[ComponentCase] = []
    for name in asked.dims:
        settings = KernelSettings(
            context_lens=token_counts(asked.context_len),
            row_counts=tuple(int(count) for count in asked.rows.split(",")),
            page_sizes=page_sizes,
            dims=(name,),
            backends=("native",),
            peers=("torch", "one-run"),
            dtype=asked.kv_dtype,
            timing=Timing(num_repeats=asked.repeats, cell_s=asked.cell_s),
        )
        of_dims = list(kernel_cases(settings, Watch(report=_say)))
        yield from table(of_dims, page_sizes)
        cases += of_dims
    yield from _aims(cases)


def table(cases: Sequence[ComponentCase], page_sizes: Sequence[int]) -> Iterator[str]:
    """One model's cases: numbers of rows by context length, a column for each page size."""
    facts = cases[0].facts
    title = f"{facts['latent_dim']} + {facts['rotary_dim']}, {facts['kv_dtype']} cache"
    yield f"\n### {title}: ms (share of the ceiling)\n"
    yield _row(
        "rows", "tokens", "ceiling", *(f"page {size}" for size in page_sizes), "torch / native", "page 1 / one run"
    )
    yield _row("--:", "--:", "---", *("--:" for _ in page_sizes), "--:", "--:")
    by_row: dict[tuple[int, int], dict[int, ComponentCase]] = {}
    for case in cases:
        key = case.facts["num_rows"], case.facts["context_len"]
        by_row.setdefault(key, {})[case.facts["page_size"]] = case
    for (num_rows, context_len), by_page in sorted(by_row.items()):
        limit = ceiling_name(by_page[page_sizes[-1]]) or "-"
        times = [f"{1e3 * seconds_of(case).median:.3g} ({_share(case):.2f})" for case in by_page.values()]
        ratios = ", ".join(f"{_ratio(case, 'torch'):.1f}" for case in by_page.values())
        scattered = f"{1 / _ratio(by_page[1], 'one run'):.2f}" if 1 in by_page else "-"
        yield _row(str(num_rows), tokens_text(context_len), limit, *times, ratios, scattered)


def _aims(cases: Sequence[ComponentCase]) -> Iterator[str]:
    """What the aims say, and the cases that miss them."""
    held = [case for case in cases if case.facts["page_size"] >= 16 and case.facts["num_rows"] not in range(2, 16)]
    for words, found, least in (
        (f"{MIN_SHARE_FRAC:.0%} of the ceiling at pages of 16 and more, 1 row and 16 and more", held, MIN_SHARE_FRAC),
        (f"{MIN_TORCH_RATIO:g} times the torch back end", list(cases), MIN_TORCH_RATIO),
    ):
        values = [(_share(case) if found is held else _ratio(case, "torch"), case.name) for case in found]
        missed = sorted(pair for pair in values if pair[0] < least)
        yield f"\n- Aim: at least {words}: met in {len(values) - len(missed)} of {len(values)} cases."
        yield from (f"  - missed: {value:.2f}, {name}" for value, name in missed)


def _share(case: ComponentCase) -> float:
    return median(shares_frac(case))


def _ratio(case: ComponentCase, peer: str) -> float:
    return median(peer_ratios(case)[peer])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attention.native", description="The native back end beside its ceiling and torch."
    )
    parser.add_argument("--context-len", default="32k,128k")
    parser.add_argument("--page-size", default="1,16,64")
    parser.add_argument("--rows", default="1,8,16,64")
    parser.add_argument("--kv-dtype", choices=sorted(DTYPES), default="float32")
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    parser.add_argument("--dims", nargs="+", choices=tuple(DIMS), default=tuple(DIMS))
    parser.add_argument("--repeats", type=int, default=DEFAULT_NUM_REPEATS)
    parser.add_argument("--cell-s", type=float, default=DEFAULT_CELL_S, help="seconds of a turn, at least one run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
