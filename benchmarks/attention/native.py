"""The native back end of attention beside what this machine can do, and beside the torch back end.

    python -m benchmarks.attention.native [--context-len 32k,128k] [--page-size 1,16,64] [--rows 1,8,16,64]
                                          [--kv-dtype float32] [--threads N] [--instruction-set NAME] [--cell-s 0.3]

One layer of latent attention of one request; rows are heads x tree nodes, all of which share each cached row. A cell
is the least of several runs in ms, and in brackets the share of the row's ceiling, measured just before the row as
`python -m benchmarks.attention` does: a plain copy's rate (read + write) for the KV bytes, or the rate of a float32
matrix product for the multiplications, whichever takes longer. `one run` has all tokens in slots that follow each
other; pages are in random order. `1 / run` is the price of pages of one token; `torch / native` compares the two back
ends, for one run of slots and for pages of 16 (in the last of --page-size, if 16 is not among them).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from benchmarks.peers.machine import machine
from deepdraft.errors import DeepdraftError
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.native_backend import NativeAttention
from deepdraft.infer.kernels.torch_backend import TorchAttention
from deepdraft.units import token_counts, tokens_text

from .case import EMBEDDED, KIMI, ONE_RUN, Dims, Kind, Layer, plan_of
from .clock import ceiling, least_s

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PEER_PAGE_SIZE = 16


def main() -> int:
    """Print the tables as they come. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attention.native", description="The native back end beside its ceiling and torch."
    )
    parser.add_argument("--context-len", default="32k,128k")
    parser.add_argument("--page-size", default="1,16,64")
    parser.add_argument("--rows", default="1,8,16,64")
    parser.add_argument("--kv-dtype", choices=sorted(DTYPES), default="float32")
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    parser.add_argument("--instruction-set", help="default: the best that the processor has")
    parser.add_argument("--dims", nargs="+", choices=("kimi", "embedded"), default=("kimi", "embedded"))
    parser.add_argument("--no-torch", action="store_true", help="leave the torch back end out")
    parser.add_argument("--cell-s", type=float, default=0.3, help="seconds for each cell")
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    started = time.monotonic()
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
    native = NativeAttention(instruction_set=asked.instruction_set)
    yield f"{machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads, {native.instruction_set}"
    kv_lens, page_sizes = token_counts(asked.context_len), token_counts(asked.page_size)
    for name, dims in (("kimi", KIMI), ("embedded", EMBEDDED)):
        if name not in asked.dims:
            continue
        slots = torch.randn(max(kv_lens) + max(*page_sizes, 256), 1, dims.row_dim).to(DTYPES[asked.kv_dtype])
        yield from table(
            Layer(native, dims, slots),
            None if asked.no_torch else TorchAttention(),
            kv_lens=kv_lens,
            page_sizes=page_sizes,
            row_counts=[int(count) for count in asked.rows.split(",")],
            cell_s=asked.cell_s,
        )


def table(
    layer: Layer,
    peer: AttentionBackend | None,
    *,
    kv_lens: Sequence[int],
    page_sizes: Sequence[int],
    row_counts: Sequence[int],
    cell_s: float,
) -> Iterator[str]:
    """Numbers of rows by context length and order of pages."""
    dims, rows = layer.dims, layer.rows
    dtype = str(rows.dtype).removeprefix("torch.")
    yield f"\n### {dims.latent_dim} + {dims.rotary_dim}, {dtype} cache: ms (share of the ceiling)\n"
    peers = ["torch / native, run", "in pages"] if peer else []
    yield from _head(
        "rows", "tokens", "ceiling", "one run", *(f"pages of {size}" for size in page_sizes), "1 / run", *peers
    )
    for row_count in row_counts:
        of_rows, kind = _shaped(layer, row_count)
        for kv_len in kv_lens:
            limit_s = ceiling().seconds(kv_len * dims.row_dim * rows.itemsize, kind.operations(of_rows.dims, kv_len))
            native_s = {size: _attention_s(of_rows, kind, kv_len, size, cell_s) for size in (ONE_RUN, *page_sizes)}
            cells = [f"{_ms(seconds)} ({limit_s / seconds:.2f})" for seconds in native_s.values()]
            scattered = f"{native_s[1] / native_s[ONE_RUN]:.2f}" if 1 in native_s else ""
            ratios = []
            if peer is not None:
                beside = replace(of_rows, backend=peer)
                compared = (ONE_RUN, PEER_PAGE_SIZE if PEER_PAGE_SIZE in page_sizes else page_sizes[-1])
                peer_s = {size: _attention_s(beside, kind, kv_len, size, cell_s) for size in compared}
                ratios = [f"{peer_s[size] / native_s[size]:.1f}" for size in compared]
            yield _row(str(row_count), tokens_text(kv_len), _ms(limit_s), *cells, scattered, *ratios)


def _shaped(layer: Layer, row_count: int) -> tuple[Layer, Kind]:
    """The layer with as many heads as there are rows, at most its own, and a tree of as many nodes as they leave."""
    num_heads = min(row_count, layer.dims.num_heads)
    num_nodes = row_count // num_heads
    dims: Dims = replace(layer.dims, num_heads=num_heads)
    return replace(layer, dims=dims), Kind(f"{num_nodes} nodes", num_nodes, is_tree=num_nodes > 1)


def _attention_s(layer: Layer, kind: Kind, kv_len: int, page_size: int, cell_s: float) -> float:
    return least_s(layer.attention(kind, plan_of(kind, kv_len, page_size)), cell_s)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def _head(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield _row(*("---" for _ in cells))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
