"""The tables, as lines of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from deepdraft.infer.components.attention import DECODE, FLOAT_BYTES, KINDS, ONE_RUN, TREE, Dims, Kind, Layer, plan_of
from deepdraft.infer.components.clock import ceiling, least_s
from deepdraft.infer.kernels.dense import fused_attention, portable_attention
from deepdraft.infer.kernels.expanded import fewest_expanded_queries
from deepdraft.units import tokens_text

MAX_OPERATIONS = 0.5e12


def attention(
    layer: Layer, kv_lens: Sequence[int], page_sizes: Sequence[int], cell_s: float, *, is_full: bool
) -> Iterator[str]:
    """Kinds of step by context length and order of pages."""
    yield f"\n### One layer of {layer.dims.name}: ms (share of the ceiling)\n"
    yield from _head("step", "tokens", "ceiling", "one run", *(f"pages of {size}" for size in page_sizes))
    for kind in KINDS:
        for kv_len in kv_lens:
            operations = kind.operations(layer.dims, kv_len)
            if kv_len <= kind.num_queries or (operations > MAX_OPERATIONS and not is_full):
                continue
            limit_s = ceiling().seconds(kv_len * layer.dims.row_dim * FLOAT_BYTES, operations)
            cells = []
            for page_size in (ONE_RUN, *page_sizes):
                seconds = least_s(layer.attention(kind, plan_of(kind, kv_len, page_size)), cell_s)
                cells.append(f"{_ms(seconds)} ({limit_s / seconds:.2f})")
            yield _row(kind.name, tokens_text(kv_len), _ms(limit_s), *cells)


def pages(layer: Layer, kv_len: int, page_sizes: Sequence[int], cell_s: float) -> Iterator[str]:
    """What a page size costs in room, and in time of a decode step of all layers."""
    yield f"\n### Page size: a decode step at {tokens_text(kv_len)} tokens, {layer.dims.num_layers} layers\n"
    yield "Wasted: half a page at the end of each request, and as much of a shared prefix that is prefilled again,"
    yield "for the radix cache keeps whole pages. Lists: what the step does once, before the first layer.\n"
    yield from _head(
        "page size", "wasted", "of 1k", "lists ms", "one run ms", "shuffled ms", "lists + shuffled / run"
    )
    one_run_s = layer.dims.num_layers * least_s(layer.attention(DECODE, plan_of(DECODE, kv_len, ONE_RUN)), cell_s)
    for page_size in page_sizes:
        plan = plan_of(DECODE, kv_len, page_size)
        known_s = least_s(layer.attention(DECODE, plan), cell_s)
        lists_s = max(0.0, least_s(layer.attention_with_new_plan(plan), cell_s) - known_s)
        shuffled_s = known_s * layer.dims.num_layers
        wasted = (page_size - 1) / 2
        yield _row(
            str(page_size),
            f"{wasted:g} tokens",
            f"{wasted / 10:.2f} %",
            _ms(lists_s),
            _ms(one_run_s),
            _ms(shuffled_s),
            f"{(lists_s + shuffled_s) / one_run_s:.2f}",
        )


def forms(layer: Layer, kv_len: int, cell_s: float) -> Iterator[str]:
    """Absorbed beside expanded, by number of queries."""
    dims = layer.dims
    fewest = fewest_expanded_queries(latent_dim=dims.latent_dim, plain_dim=dims.plain_dim, value_dim=dims.value_dim)
    yield f"\n### Absorbed or expanded: {dims.name}, at {tokens_text(kv_len)} tokens (expanded from {fewest} on)\n"
    yield from _head("queries", "absorbed ms", "expanded ms", "expanded / absorbed")
    for num_queries in (32, 64, 96, 128, 192, 256, 384):
        plan = plan_of(Kind("", num_queries), kv_len, ONE_RUN)
        absorbed_s, expanded_s = (
            least_s(layer.attention(Kind("", num_queries, is_expanded=is_expanded), plan), cell_s)
            for is_expanded in (False, True)
        )
        yield _row(str(num_queries), _ms(absorbed_s), _ms(expanded_s), f"{expanded_s / absorbed_s:.2f}")


def kernels(dims: Dims, kv_len: int, cell_s: float) -> Iterator[str]:
    """The two dense kernels on one block of keys."""
    yield f"\n### Dense kernels: {tokens_text(kv_len)} keys of {dims.row_dim}\n"
    yield from _head("query rows", "ceiling", "portable ms", "fused ms", "portable / fused")
    keys = torch.randn(1, 1, kv_len, dims.row_dim)
    for num_rows in (4, 16, 64, 256, 1024):
        limit_s = ceiling().seconds(keys.nbytes, 2 * num_rows * kv_len * (dims.row_dim + dims.latent_dim))
        queries = torch.randn(1, 1, num_rows, dims.row_dim)
        portable_s, fused_s = (
            least_s(partial(kernel, queries, keys, keys, value_dim=dims.latent_dim, scale=0.1), cell_s)
            for kernel in (portable_attention, fused_attention)
        )
        yield _row(str(num_rows), _ms(limit_s), _ms(portable_s), _ms(fused_s), f"{portable_s / fused_s:.2f}")


def requests(layer: Layer, kv_len: int, cell_s: float) -> Iterator[str]:
    """Short requests in one step beside as many steps of one."""
    yield f"\n### Requests of {tokens_text(kv_len)} tokens, pages of 16 in random order, one layer\n"
    yield from _head("step", "requests", "one by one ms", "together ms", "one by one / together")
    for kind in (DECODE, TREE):
        alone_s = least_s(layer.attention(kind, plan_of(kind, kv_len, 16)), cell_s)
        for num_requests in (4, 16, 64):
            together_s = least_s(layer.attention(kind, plan_of(kind, kv_len, 16, num_requests)), cell_s)
            one_by_one_s = alone_s * num_requests
            yield _row(
                kind.name, str(num_requests), _ms(one_by_one_s), _ms(together_s), f"{one_by_one_s / together_s:.2f}"
            )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}" if seconds < 0.1 else f"{seconds * 1e3:.0f}"


def _head(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield _row(*("---" for _ in cells))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
