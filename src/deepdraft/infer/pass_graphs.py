"""Decode and verify passes as CUDA graphs: captured once for a size, then replayed with other requests.

A pass of a large model is thousands of launches, which cost the host more time than the device takes for one token.
A graph is one launch, of what was captured: the same kernels on the same memory. So all that differs from pass to
pass is in buffers that are written before a replay: tokens, positions, slots, and attention's lists (`DeviceLists`:
pages, lengths, tree masks). A pass is padded up to the size of its graph: requests without queries, and rows whose
keys and values go to the pool's scratch slot and whose results nobody reads.

Prompts, passes larger than `MAX_ROWS`, and more sizes than `MAX_GRAPHS` run without a graph. So do models with
experts: their torch path asks the host which experts were chosen. Draft passes build their own batch and are not
captured.

NEVER RUN ON A GPU: none was at hand. What the tests show, on a CPU, is that a pass reads all that differs from pass
to pass from these buffers; the stand-in for `CudaCapture` there runs the captured call again. Streams, memory shared
by graphs, and whether a library call refuses to be captured, are not shown.

Shape letters: T rows of a pass, N rows whose logits are wanted, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from deepdraft.infer.batch import Batch
from deepdraft.infer.config import MlaShape
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.expanded import EXPANSION_PRICES, fewest_expanded_queries
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kernels.triton.lists import DeviceLists, Maxima
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.models.model import Forwarded, Model

MAX_ROWS = 512
"""Of a pass: more are bound by multiplication, and what launches cost is hidden behind it."""
MAX_QUERY_LEN = 64
"""Of a request in a pass with a graph."""
MAX_GRAPHS = 64
"""Each holds lists of its own; activations share one memory."""
MIN_KV_LEN = 4096
"""Contexts up to here share a size, then up to 4 times as long, and so on: the length decides on how many pieces
attention cuts the context, and a cut for 256k costs short contexts 9 % (rtx6kpro) to twice the time (vllm#40991)."""
WARM_UP_CALLS = 2
"""Before a capture, which can't compile kernels or allocate a library's workspace."""


class Capture(Protocol):
    """Captures a call."""

    def __call__(self, function: Callable[[], Forwarded]) -> tuple[Forwarded, Callable[[], None]]:
        """The call's result, and what computes it anew: into the same tensors, from what the memory that the call
        read holds by then. The result is there after the first replay."""


class StaticAttention(AttentionBackend, Protocol):
    """A back end that can read a pass's lists from fixed memory."""

    def lend(self, plan: AttentionPlan, lists: DeviceLists) -> None:
        """As `TritonAttention.lend`."""


class CudaCapture:
    """A `Capture` by torch.cuda.CUDAGraph; all of one object share their memory, so none may run beside another."""

    def __init__(self) -> None:
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, function: Callable[[], Forwarded]) -> tuple[Forwarded, Callable[[], None]]:
        """As `Capture`."""
        beside, stream = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(beside)
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_CALLS):
                function()
        beside.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            forwarded = function()
        return forwarded, graph.replay


@dataclass(frozen=True, slots=True, eq=False)
class PassGraph:
    """One captured pass and the buffers it reads."""

    lists: DeviceLists
    rows: Tensor
    """int64 [3, max T]: token ids, positions, slots"""
    plan: AttentionPlan
    """The one that attention reads the lists for: that of the pass which was captured"""
    forwarded: Forwarded
    """Overwritten by each replay"""
    replay: Callable[[], None]


class PassGraphs:
    """The graphs of one model over one pool, captured as they are needed."""

    def __init__(
        self,
        model: Model,
        pool: PagePool,
        attention: StaticAttention,
        capture: Capture,
        *,
        tapped_layers: tuple[int, ...] = (),
    ) -> None:
        """Raises ValueError for a pool without a scratch slot."""
        if pool.scratch_slot is None:
            raise ValueError("a pool without a scratch slot has no place for padded rows")
        self._scratch_slot = pool.scratch_slot
        self._model = model
        self._pool = pool
        self._attention = attention
        self._capture = capture
        self._tapped_layers = tapped_layers
        self._max_query_len = min(MAX_QUERY_LEN, _most_absorbed_queries(model, attention.name))
        self._graphs: dict[Maxima, PassGraph] = {}

    @property
    def num_graphs(self) -> int:
        """Captured so far."""
        return len(self._graphs)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Forwarded | None:
        """As `Model.forward` with the graphs' tapped layers, for a batch that wants the logits of all its rows, in
        order. None: there is no graph for it, and nothing was done."""
        plan = batch.plan
        num_rows = len(batch.token_ids)
        if len(batch.logit_rows) != num_rows or not self._is_small(plan, num_rows):
            return None
        size = self._size(plan)
        graph = self._graphs.get(size)
        if graph is None:
            if len(self._graphs) == MAX_GRAPHS:
                return None
            graph = self._graphs[size] = self._captured(batch, size)
        else:
            self._load(batch, graph.lists, graph.rows)
        graph.replay()
        taps = graph.forwarded.taps
        return Forwarded(graph.forwarded.logits[:num_rows].clone(), None if taps is None else taps[:num_rows].clone())

    def _is_small(self, plan: AttentionPlan, num_rows: int) -> bool:
        return 0 < num_rows <= MAX_ROWS and max(plan.query_lens) <= self._max_query_len

    def _size(self, plan: AttentionPlan) -> Maxima:
        """Of the graph for a plan: the plan's own, rounded up."""
        own = Maxima.of(plan)
        num_requests, kv_len = rounded_up(own.num_requests), MIN_KV_LEN
        while kv_len < own.kv_len:
            kv_len *= 4
        return Maxima(
            num_requests=num_requests,
            num_rows=max(num_requests, rounded_up(own.num_rows)),
            query_len=min(self._max_query_len, rounded_up(own.query_len)),
            kv_len=kv_len,
            num_pages=num_requests * -(-kv_len // plan.page_size),
        )

    def _captured(self, batch: Batch, size: Maxima) -> PassGraph:
        """A graph with this batch in its buffers."""
        device = self._pool.device
        rows = torch.zeros(3, size.num_rows, dtype=torch.int64, device=device)
        lists = DeviceLists.empty(size, page_size=batch.plan.page_size, device=device)
        self._load(batch, lists, rows)
        self._attention.lend(batch.plan, lists)
        every_row = torch.arange(size.num_rows, device=device)
        padded = Batch(token_ids=rows[0], positions=rows[1], slots=rows[2], plan=batch.plan, logit_rows=every_row)
        forwarded, replay = self._capture(
            lambda: self._model.forward(padded, self._pool, self._attention, tapped_layers=self._tapped_layers)
        )
        return PassGraph(lists, rows, batch.plan, forwarded, replay)

    def _load(self, batch: Batch, lists: DeviceLists, rows: Tensor) -> None:
        """Put a batch into the buffers; rows beyond its own are token 0 at position 0 in the scratch slot."""
        num_rows = len(batch.token_ids)
        lists.load(batch.plan)
        for buffer, own in zip(rows, (batch.token_ids, batch.positions, batch.slots), strict=True):
            buffer[:num_rows] = own
        rows[:2, num_rows:] = 0
        rows[2, num_rows:] = self._scratch_slot


def cuda_graphs(
    model: Model, pool: PagePool, attention: AttentionBackend, *, tapped_layers: tuple[int, ...] = ()
) -> PassGraphs | None:
    """Graphs where they can be had: on a CUDA device, with the Triton back end, for a model without experts."""
    if pool.device.type != "cuda" or attention.name != "triton" or model.config.moe is not None:
        return None
    from deepdraft.infer.kernels.triton_backend import TritonAttention  # triton comes with torch for GPUs alone

    assert isinstance(attention, TritonAttention)
    return PassGraphs(model, pool, attention, CudaCapture(), tapped_layers=tapped_layers)


def rounded_up(number: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: padding is a third of a pass at most."""
    power = 1 << (number - 1).bit_length()
    between = power // 4 * 3
    return between if number <= between else power


def _most_absorbed_queries(model: Model, backend_name: str) -> int:
    """Queries of a request that a model attends to in the form that reads lists; MAX_QUERY_LEN: it has no other."""
    shape = model.config.attention
    if not isinstance(shape, MlaShape):
        return MAX_QUERY_LEN
    fewest = fewest_expanded_queries(
        latent_dim=shape.kv_lora_rank,
        plain_dim=shape.qk_nope_head_dim,
        value_dim=shape.v_head_dim,
        price=EXPANSION_PRICES[backend_name],
    )
    return MAX_QUERY_LEN if fewest is None else fewest - 1
