"""Attention of a decode or verify step over paged KV: one layer, one request, rows (heads x tree nodes) that share
each cached row.

Ceiling: the KV bytes at the rate at which as many are copied (read + write), or the multiplications at that of a
matrix product, whichever takes longer. Peers: the torch back end; torch's own `scaled_dot_product_attention` over the
same rows in one piece; and the same back end with all tokens in one run of slots, which tells what scattered pages
cost.

Leaves out prefill (`python -m benchmarks.attention`) and CUDA graphs (`python -m benchmarks.attention.gpu`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.components.attention import (
    EMBEDDED,
    KIMI,
    ONE_RUN,
    SCALE,
    Dims,
    Kind,
    Layer,
    binary_tree,
    plan_of,
)
from deepdraft.infer.components.clock import Machine
from deepdraft.infer.components.turns import Candidate, Timing, Watch, cases_of
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.native_backend import missing
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.records.component import ComponentCase
from deepdraft.units import tokens_text

DIMS: dict[str, Dims] = {"kimi": KIMI, "embedded": EMBEDDED}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PEERS = ("torch", "sdpa", "one-run")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSettings:
    """What to run; every combination is a case."""

    context_lens: tuple[int, ...] = (8_000, 32_000)
    row_counts: tuple[int, ...] = (1, 8, 16, 64)
    page_sizes: tuple[int, ...] = (16,)
    """In random order; 0: one run of slots."""
    dims: tuple[str, ...] = ("kimi", "embedded")
    """As in DIMS."""
    backends: tuple[str, ...] = ()
    """As in `kernels.select`; empty: the fastest that there is here."""
    peers: tuple[str, ...] = PEERS
    dtype: str | None = None
    """Of the cache; None: float32 on a CPU, bfloat16 on a GPU."""
    timing: Timing

    @property
    def cache_dtype(self) -> str:
        """As it takes effect."""
        return self.dtype or ("bfloat16" if self.timing.device.type == "cuda" else "float32")


def backends_here(device: torch.device) -> tuple[str, ...]:
    """Those that run on this device, the fastest first."""
    if device.type == "cpu":
        return ("native", "torch") if missing() is None else ("torch",)
    return ("triton", "torch") if device.type == "cuda" and _has_triton(device) else ("torch",)


def kernel_cases(settings: KernelSettings, watch: Watch) -> Iterator[ComponentCase]:
    """Each case as it is measured. Raises UsageError, before anything is measured, for a back end that isn't here or
    rows that can't be."""
    device = settings.timing.device
    names = settings.backends or backends_here(device)[:1]
    backends = [attention_backend(name, device) for name in names]
    for name in settings.dims:
        for num_rows in settings.row_counts:
            Layer(backends[0], DIMS[name], torch.empty(0)).shaped(num_rows)
    return cases_of(_candidates(settings, backends), settings.timing, watch)


def _candidates(settings: KernelSettings, backends: list[AttentionBackend]) -> Iterator[Candidate]:
    device, dtype = settings.timing.device, DTYPES[settings.cache_dtype]
    of_product = torch.float32 if device.type == "cpu" else dtype
    machine = Machine(device, of_product, rate_s=settings.timing.cell_s)
    num_slots = max(settings.context_lens) + max(*settings.page_sizes, 256)
    for dims in (DIMS[name] for name in settings.dims):
        slots = torch.randn(num_slots, 1, dims.row_dim).to(device, dtype)
        for backend in backends:
            layer = Layer(backend, dims, slots)
            for kv_len in settings.context_lens:
                for num_rows in settings.row_counts:
                    for page_size in settings.page_sizes:
                        yield _candidate(layer, kv_len, num_rows, page_size, machine, settings)


def _candidate(
    layer: Layer, kv_len: int, num_rows: int, page_size: int, machine: Machine, settings: KernelSettings
) -> Candidate:
    of_rows, kind = layer.shaped(num_rows)
    dims, name = of_rows.dims, layer.backend.name
    where = f"page {page_size}" if page_size != ONE_RUN else "one run"
    facts: dict[str, Any] = {
        "backend": name,
        "latent_dim": dims.latent_dim,
        "rotary_dim": dims.rotary_dim,
        "num_heads": dims.num_heads,
        "num_nodes": kind.num_queries,
        "num_rows": num_rows,
        "context_len": kv_len,
        "page_size": page_size,
        "kv_dtype": settings.cache_dtype,
    }
    plan = plan_of(kind, kv_len, page_size, device=settings.timing.device)
    kv_bytes = float(kv_len * dims.row_dim * layer.rows.itemsize)
    return Candidate(
        name=f"{dims.latent_dim}+{dims.rotary_dim} {tokens_text(kv_len)}, {num_rows} rows, {where}, {name}",
        facts=facts,
        run=of_rows.attention(kind, plan),
        peers=_peers(of_rows, kind, kv_len, page_size, settings),
        work={"copy": kv_bytes, "matmul": kind.operations(dims, kv_len)},
        rates={"copy": partial(machine.copy_bytes_s, kv_bytes), "matmul": machine.matrix_flop_s},
    )


def _peers(
    layer: Layer, kind: Kind, kv_len: int, page_size: int, settings: KernelSettings
) -> dict[str, Callable[[], object]]:
    device = settings.timing.device
    found: dict[str, Callable[[], object]] = {}
    if "torch" in settings.peers and layer.backend.name != "torch":
        other = replace(layer, backend=attention_backend("torch", device))
        found["torch"] = other.attention(kind, plan_of(kind, kv_len, page_size, device=device))
    if "sdpa" in settings.peers:
        found["sdpa"] = _sdpa(layer, kind, kv_len)
    if "one-run" in settings.peers and page_size != ONE_RUN:
        found["one run"] = layer.attention(kind, plan_of(kind, kv_len, ONE_RUN, device=device))
    return found


def _sdpa(layer: Layer, kind: Kind, kv_len: int) -> Callable[[], object]:
    """The same rows over one piece of memory; the prefix is seen by all, the tail by the tree's mask."""
    keys = layer.rows[:kv_len].view(1, 1, kv_len, layer.dims.row_dim)
    num_rows = kind.num_queries * layer.dims.num_heads
    queries = torch.randn(1, 1, num_rows, layer.dims.row_dim).to(keys.device, keys.dtype)
    mask: Tensor | None = None
    if kind.is_tree:
        mask = torch.ones(kind.num_queries, kv_len, dtype=torch.bool)
        mask[:, kv_len - kind.num_queries :] = binary_tree(kind.num_queries)
        mask = mask.repeat_interleave(layer.dims.num_heads, dim=0).to(keys.device)
    values = keys[..., : layer.dims.latent_dim]
    return lambda: F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=SCALE)


def _has_triton(device: torch.device) -> bool:
    try:
        attention_backend("triton", device)
    except UsageError:
        return False
    return True
