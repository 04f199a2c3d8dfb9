"""The command line: which tables, of what sizes."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import torch

from benchmarks.peers.machine import machine
from deepdraft.errors import DeepdraftError
from deepdraft.infer.components.attention import EMBEDDED, KIMI, Layer
from deepdraft.infer.kernels.select import BACKENDS, attention_backend
from deepdraft.units import token_counts

from . import section

PARTS = ("attention", "pages", "forms", "kernels", "requests")


def main() -> int:
    """Print the tables as they come. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attention", description="Attention beside its ceiling."
    )
    parser.add_argument("--context-len", default="1k,8k,32k,128k")
    parser.add_argument("--page-size", default="1,16,64,256")
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--backend", choices=sorted(BACKENDS))
    parser.add_argument("--cell-s", type=float, default=0.15, help="seconds for each cell")
    parser.add_argument("--full", action="store_true", help="the largest prefills too")
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    started = time.monotonic()
    print(f"{machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    try:
        with torch.inference_mode():
            for line in _lines(asked):
                print(line, flush=True)
    except DeepdraftError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"\n{time.monotonic() - started:.0f} s")
    return 0


def _lines(asked: argparse.Namespace) -> Iterator[str]:
    kv_lens, page_sizes = token_counts(asked.context_len), token_counts(asked.page_size)
    backend = attention_backend(asked.backend, torch.device("cpu"))
    num_slots = max(64_000 + 64 * 256, max(kv_lens) + max(page_sizes))
    embedded, kimi = (Layer(backend, dims, torch.randn(num_slots, 1, dims.row_dim)) for dims in (EMBEDDED, KIMI))
    for layer in (embedded, kimi):
        if "attention" in asked.only:
            yield from section.attention(layer, kv_lens, page_sizes, asked.cell_s, is_full=asked.full)
    if "pages" in asked.only:
        yield from section.pages(embedded, max(kv_lens), page_sizes, asked.cell_s)
    for layer in (embedded, kimi):
        if "forms" in asked.only:
            yield from section.forms(layer, 8_000, asked.cell_s)
        if "kernels" in asked.only:
            yield from section.kernels(layer.dims, 8_000, asked.cell_s)
    if "requests" in asked.only:
        yield from section.requests(embedded, 1_000, asked.cell_s)


if __name__ == "__main__":
    sys.exit(main())
