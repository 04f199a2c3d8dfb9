"""The Triton attention kernels on a GPU: are they right, and how near do they come to the device's copy rate?

    python -m benchmarks.attention.gpu [--context-len 1k,8k,32k,128k] [--quick] [--programs-per-sm 1,2,4]

One run, some minutes, Markdown on standard output; exits with 1 where a result is wrong, with 2 without a GPU.

`right`: against the definition in float64. `graph`: a captured CUDA graph follows lists that are loaded later.
`speed`: one layer of latent attention (512 + 64, bfloat16), decode and trees; times are of replayed graphs, so
without launches, and go through several layers in turn, together larger than any L2 cache. The ceiling is a plain
copy in the same run (read + write bytes). Beside it: without splitting the context, and with pages of 64 and of 1 in
random order. `splits`: other numbers of programs for each multiprocessor. `move`: accepted rows in all layers, one
launch against two for each layer.

Leaves out everything of a step that isn't attention.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
import triton
from torch import Tensor

from deepdraft.infer.components.attention import DECODE, KIMI, KINDS, ONE_RUN, TREE, Kind, plan_of
from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.plan import AttentionPlan, LayerKv
from deepdraft.infer.kernels.reference import ReferenceAttention
from deepdraft.infer.kernels.triton.lists import DeviceLists, Maxima
from deepdraft.infer.kernels.triton.move import RowMover
from deepdraft.infer.kernels.triton.tile import Splitting
from deepdraft.infer.kernels.triton_backend import TritonAttention
from deepdraft.units import token_counts, tokens_text

CUDA = torch.device("cuda")
REPLAYS = 30
COLD_BYTES = 1 << 30
"""Of all layers gone through in turn"""
TOLERANCES = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Of a result of standard normal queries, keys and values"""
SHAPES = {
    "latent 512+64": (8, 1, 576, 512),
    "latent 64+16": (4, 1, 80, 64),
    "32 heads on 8 of 128": (32, 8, 128, 128),
}
FEW_KINDS = tuple(kind for kind in KINDS if not kind.is_expanded)
SCALE = 0.05


def main() -> int:
    """Print the tables as they come. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention.gpu", description="Attention on a GPU.")
    parser.add_argument("--context-len", default="1k,8k,32k,128k")
    parser.add_argument("--programs-per-sm", default="1,2,4")
    parser.add_argument("--quick", action="store_true", help="correctness alone")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("error: no GPU here", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    properties = torch.cuda.get_device_properties(CUDA)
    device = TritonAttention(CUDA).device
    print(f"{properties.name} ({device.arch}, {device.num_sms} SMs)")
    print(f"torch {torch.__version__}, triton {triton.__version__}")
    wrong = 0
    with torch.inference_mode():
        for is_right, line in (*right(), *graph(), *move()):
            wrong += not is_right
            print(line, flush=True)
        if not asked.quick:
            kv_lens = token_counts(asked.context_len)
            per_sm = [int(number) for number in asked.programs_per_sm.split(",")]
            for line in (*speed(kv_lens), *splits(kv_lens, per_sm)):
                print(line, flush=True)
    print(f"\n{wrong} wrong" if wrong else "\nall right")
    return 1 if wrong else 0


def right() -> Iterator[tuple[bool, str]]:
    """Mixed requests of every shape, page size and type against the definition."""
    yield True, "\n### Largest difference from the definition\n"
    yield True, "| shape | type | pages of | out | lse | |\n|---|---|---|---|---|---|"
    backend = TritonAttention(CUDA)
    for name, shape in SHAPES.items():
        for dtype, tolerance in TOLERANCES.items():
            for page_size in (1, 16, 64):
                plan = _mixed(page_size)
                queries, layer = _rows(shape, plan, dtype)
                found = backend.attend(queries, layer, plan, scale=SCALE)
                out, lse = _difference(found, queries, layer, plan)
                is_right = out <= tolerance and lse <= tolerance
                verdict = "right" if is_right else "WRONG"
                yield is_right, f"| {name} | {dtype} | {page_size} | {out:.1e} | {lse:.1e} | {verdict} |"


def graph() -> Iterator[tuple[bool, str]]:
    """A graph captured with one plan and replayed with another."""
    backend, first, second = TritonAttention(CUDA), _mixed(16), _mixed(16, kv_lens=(900, 2100, 70))
    maxima = replace(Maxima.of(first), kv_len=8192, num_pages=2048)
    lists = DeviceLists.empty(maxima, page_size=16, device=CUDA)
    queries, layer = _rows(SHAPES["latent 512+64"], first, torch.bfloat16, num_pages=1000)
    lists.load(first)
    replay, found = _captured(lambda: backend.attend_lists(queries, layer, lists, scale=SCALE))
    lists.load(second)
    replay()
    out, lse = _difference(found, queries, layer, second)
    is_right = max(out, lse) <= TOLERANCES[torch.bfloat16]
    yield (
        is_right,
        f"\nA captured graph follows loaded lists: {'right' if is_right else 'WRONG'} ({out:.1e}, {lse:.1e})",
    )


def move(num_layers: int = KIMI.num_layers, num_moves: int = 16) -> Iterator[tuple[bool, str]]:
    """Accepted rows in all layers."""
    layers = [torch.randn(4096, 1, KIMI.row_dim, device=CUDA).to(torch.bfloat16) for _ in range(num_layers)]
    sources, targets = (
        torch.arange(100, 100 + 2 * num_moves, 2, device=CUDA),
        torch.arange(100, 100 + num_moves, device=CUDA),
    )
    count = torch.tensor([num_moves], dtype=torch.int32, device=CUDA)
    expected = [layer.index_copy(0, targets, layer.index_select(0, sources)) for layer in layers]
    mover = RowMover(layers)
    mover.move(sources, targets, count)
    is_right = all(torch.equal(*pair) for pair in zip(layers, expected, strict=True))

    def one_by_one() -> None:
        for layer in layers:
            layer.index_copy_(0, targets, layer.index_select(0, sources))

    fused_s, apart_s = (_eager_s(run) for run in (lambda: mover.move(sources, targets, count), one_by_one))
    yield (
        is_right,
        (
            f"\n{num_moves} rows moved in {num_layers} layers: {'right' if is_right else 'WRONG'}; one launch "
            f"{fused_s * 1e6:.0f} us, two for each layer {apart_s * 1e6:.0f} us (launches included)"
        ),
    )


def speed(kv_lens: Sequence[int]) -> Iterator[str]:
    """Latent attention by kind of step and context length."""
    copy_bytes_s = _copy_bytes_s()
    yield f"\n### One layer, 512 + 64, bfloat16; a copy moves {copy_bytes_s / 1e9:.0f} GB/s\n"
    yield "The last three columns as multiples of ms.\n"
    yield "| step | tokens | ms | GB/s | of the copy | unsplit | pages of 64, shuffled | pages of 1, shuffled |"
    yield "|---|---|---|---|---|---|---|---|"
    split, unsplit = TritonAttention(CUDA), TritonAttention(CUDA, splitting=Splitting(max_splits=1))
    for kind in FEW_KINDS:
        for kv_len in kv_lens:
            in_a_row_s = _layer_s(split, kind, kv_len, ONE_RUN)
            ratios = [
                _layer_s(backend, kind, kv_len, page_size) / in_a_row_s
                for backend, page_size in ((unsplit, ONE_RUN), (split, 64), (split, 1))
            ]
            bytes_s = kv_len * KIMI.row_dim * 2 / in_a_row_s
            yield (
                f"| {kind.name} | {tokens_text(kv_len)} | {in_a_row_s * 1e3:.3f} | {bytes_s / 1e9:.0f} | "
                f"{bytes_s / copy_bytes_s:.2f} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |"
            )


def splits(kv_lens: Sequence[int], per_sm: Sequence[int]) -> Iterator[str]:
    """Other numbers of programs for each multiprocessor, and of tokens in a split."""
    yield "\n### ms by programs for each multiprocessor, least tokens in a split\n"
    choices = [
        Splitting(programs_per_sm=number, min_split_len=least) for number in per_sm for least in (64, 128, 256)
    ]
    yield f"| step | tokens | {' | '.join(f'{c.programs_per_sm}, {c.min_split_len}' for c in choices)} |"
    yield f"|---|---|{'---|' * len(choices)}"
    for kind in (DECODE, TREE):
        for kv_len in kv_lens:
            cells = [_layer_s(TritonAttention(CUDA, splitting=choice), kind, kv_len, 64) * 1e3 for choice in choices]
            yield f"| {kind.name} | {tokens_text(kv_len)} | {' | '.join(f'{cell:.3f}' for cell in cells)} |"


def _layer_s(backend: TritonAttention, kind: Kind, kv_len: int, page_size: int) -> float:
    """Seconds of one layer, cold in the L2 cache."""
    plan = replace(plan_of(kind, kv_len, page_size), device=CUDA)
    num_slots = max(map(max, plan.pages)) * plan.page_size + plan.page_size
    num_layers = max(2, COLD_BYTES // (num_slots * KIMI.row_dim * 2))
    rows = [torch.randn(num_slots, 1, KIMI.row_dim, device=CUDA, dtype=torch.bfloat16) for _ in range(num_layers)]
    layers = [LayerKv(row, row[..., : KIMI.latent_dim], is_latent=True) for row in rows]
    queries = torch.randn(kind.num_queries, KIMI.num_heads, KIMI.row_dim, device=CUDA, dtype=torch.bfloat16)

    def all_layers() -> None:
        for layer in layers:
            backend.attend(queries, layer, plan, scale=SCALE)

    return _replayed_s(all_layers) / num_layers


def _copy_bytes_s() -> float:
    """Read and written together, of a gigabyte."""
    source = torch.empty(COLD_BYTES, dtype=torch.uint8, device=CUDA)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _replayed_s(lambda: target.copy_(source))


def _mixed(page_size: int, kv_lens: Sequence[int] = (1500, 700, 64)) -> AttentionPlan:
    """Decode and two trees, pages in random order."""
    plans = [plan_of(kind, kv_len, page_size) for kind, kv_len in zip(FEW_KINDS, kv_lens, strict=True)]
    firsts = [sum(len(plan.pages[0]) for plan in plans[:place]) for place in range(len(plans))]
    return AttentionPlan.of(
        page_size=page_size,
        query_lens=[kind.num_queries for kind in FEW_KINDS],
        kv_lens=kv_lens,
        pages=[[first + page for page in plan.pages[0]] for first, plan in zip(firsts, plans, strict=True)],
        tail_masks=[plan.tail_masks[0] for plan in plans],
        device=CUDA,
    )


def _rows(
    shape: tuple[int, int, int, int], plan: AttentionPlan, dtype: torch.dtype, *, num_pages: int | None = None
) -> tuple[Tensor, LayerKv]:
    """Queries and a layer; slots that no request has are NaN, unless num_pages says how many are written."""
    num_heads, num_kv_heads, key_dim, value_dim = shape
    random = partial(torch.randn, device=CUDA)
    queries = random(sum(plan.query_lens), num_heads, key_dim).to(dtype)
    num_slots = (num_pages or max(map(max, plan.pages)) + 2) * plan.page_size
    unwritten = torch.full((num_slots,), num_pages is None, device=CUDA)
    unwritten[torch.cat(plan.slots)] = False
    keys = random(num_slots, num_kv_heads, key_dim).masked_fill(unwritten[:, None, None], torch.nan).to(dtype)
    if num_kv_heads == 1:
        return queries, LayerKv(keys, keys[..., :value_dim], is_latent=True)
    values = random(num_slots, num_kv_heads, value_dim).masked_fill(unwritten[:, None, None], torch.nan).to(dtype)
    return queries, LayerKv(keys, values, is_latent=False)


def _difference(found: Attended, queries: Tensor, layer: LayerKv, plan: AttentionPlan) -> tuple[float, float]:
    truth = ReferenceAttention().attend(queries.double(), layer, plan, scale=SCALE)
    out, lse = ((one.double() - other).abs().max().item() for one, other in zip(found, truth, strict=True))
    return out, lse


def _captured(run: Callable[[], Attended]) -> tuple[Callable[[], None], Attended]:
    """A graph of one run, after one that compiles, and the result it writes."""
    run()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        found = run()
    return captured.replay, found


def _replayed_s(run: Callable[[], object]) -> float:
    """The least seconds of a replay of its graph."""
    run()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        run()
    return _eager_s(captured.replay)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _eager_s(run: Callable[[], object]) -> float:
    """The least seconds of REPLAYS runs, launches included."""
    least_ms = float("inf")
    for _ in range(REPLAYS):
        started, ended = (_event() for _ in range(2))
        started.record()
        run()
        ended.record()
        ended.synchronize()
        least_ms = min(least_ms, started.elapsed_time(ended))
    return least_ms / 1e3


if __name__ == "__main__":
    sys.exit(main())
