"""One layer of latent attention, a kind of step, and pages in some order: what attention's benchmarks run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.plan import AttentionPlan, LayerKv

FLOAT_BYTES = 4
SCALE = 0.1
ONE_RUN = 0
"""As a page size: all tokens in one run of slots."""


@dataclass(frozen=True)
class Dims:
    """Heads, latent and rotary widths, and a head's own widths in the expanded form."""

    name: str
    num_heads: int
    latent_dim: int
    rotary_dim: int
    plain_dim: int
    value_dim: int
    num_layers: int

    @property
    def row_dim(self) -> int:
        """Numbers that a token has in one layer's cache."""
        return self.latent_dim + self.rotary_dim


EMBEDDED = Dims("the embedded model: 4 heads, 64 + 16", 4, 64, 16, 32, 32, 6)
KIMI = Dims("Kimi K2 on one of eight devices: 8 heads, 512 + 64", 8, 512, 64, 128, 128, 61)


@dataclass(frozen=True)
class Kind:
    """What a step does to one request."""

    name: str
    num_queries: int
    is_tree: bool = False
    is_expanded: bool = False

    def operations(self, dims: Dims, kv_len: int) -> float:
        """Multiplications and additions of one layer; half the tail counts as hidden."""
        num_scores = dims.num_heads * self.num_queries * (kv_len - self.num_queries / 2)
        if not self.is_expanded:
            return 2 * num_scores * (dims.row_dim + dims.latent_dim)
        expanding = dims.num_heads * kv_len * dims.latent_dim * (dims.plain_dim + dims.value_dim)
        return 2 * (num_scores * (dims.plain_dim + dims.rotary_dim + dims.value_dim) + expanding)


DECODE = Kind("decode", 1)
TREE = Kind("tree 16", 16, is_tree=True)
KINDS = (DECODE, TREE, Kind("tree 64", 64, is_tree=True), Kind("prefill 1024", 1024, is_expanded=True))


def plan_of(
    kind: Kind, kv_len: int, page_size: int, num_requests: int = 1, device: torch.device | None = None
) -> AttentionPlan:
    """Requests of one kind and length; ONE_RUN: in pages of 256 that follow each other, else in random order."""
    num_pages = -(-kv_len // (page_size or 256))
    total = num_pages * num_requests
    pages = (torch.randperm(total) if page_size else torch.arange(total)).view(num_requests, -1)
    return AttentionPlan.of(
        page_size=page_size or 256,
        query_lens=[kind.num_queries] * num_requests,
        kv_lens=[kv_len] * num_requests,
        pages=pages.tolist(),
        tail_masks=[binary_tree(kind.num_queries).to(device) if kind.is_tree else None] * num_requests,
        device=device,
    )


def binary_tree(num_nodes: int) -> Tensor:
    """bool [t, t]: what each node of a full binary tree sees, itself and those above it."""
    seen = torch.eye(num_nodes, dtype=torch.bool)
    for node in range(1, num_nodes):
        seen[node] |= seen[(node - 1) // 2]
    return seen


@dataclass(frozen=True)
class Layer:
    """One layer's cache, as large as the longest case wants it, and what attends to it."""

    backend: AttentionBackend
    dims: Dims
    rows: Tensor
    """[S, 1, row_dim]"""

    def attention(self, kind: Kind, plan: AttentionPlan) -> Callable[[], object]:
        """Attention of this plan, ready to run."""
        dims, num_rows, layer = self.dims, sum(plan.query_lens), self.cache(plan.page_size)
        if not kind.is_expanded:
            queries = torch.randn(num_rows, dims.num_heads, dims.row_dim).to(self.rows.device)
            if self.rows.is_cuda:
                queries = queries.to(self.rows.dtype)  # as a model on a GPU computes
            return lambda: self.backend.attend(queries, layer, plan, scale=SCALE)
        queries = torch.randn(num_rows, dims.num_heads, dims.plain_dim + dims.rotary_dim)
        key_up = torch.randn(dims.num_heads, dims.plain_dim, dims.latent_dim)
        value_up = torch.randn(dims.num_heads, dims.value_dim, dims.latent_dim)
        attend = partial(self.backend.attend_expanded, key_up=key_up, value_up=value_up, scale=SCALE)
        return lambda: attend(queries, layer, plan)

    def attention_with_new_plan(self, plan: AttentionPlan) -> Callable[[], object]:
        """Decode with a plan made anew from the same lists, as each step makes one."""
        queries = torch.randn(sum(plan.query_lens), self.dims.num_heads, self.dims.row_dim)
        layer = self.cache(plan.page_size)

        def attend() -> None:
            new = AttentionPlan.of(
                page_size=plan.page_size, query_lens=plan.query_lens, kv_lens=plan.kv_lens, pages=plan.pages
            )
            self.backend.attend(queries, layer, new, scale=SCALE)

        return attend

    def cache(self, page_size: int) -> LayerKv:
        """The rows as a layer's cache, whole pages of them."""
        rows = self.rows[: len(self.rows) // page_size * page_size]
        return LayerKv(rows, rows[..., : self.dims.latent_dim], is_latent=True)

    def shaped(self, num_rows: int) -> tuple[Layer, Kind]:
        """The layer with as many heads as there are rows, at most its own, and a tree of as many nodes as they leave.

        Raises UsageError for rows that are no whole nodes.
        """
        num_heads = min(num_rows, self.dims.num_heads)
        if num_rows % num_heads:
            raise UsageError(
                f"{num_rows} rows aren't whole nodes of {num_heads} heads",
                hint=f"rows are heads x nodes: up to {num_heads}, or a multiple of it",
            )
        num_nodes = num_rows // num_heads
        layer = replace(self, dims=replace(self.dims, num_heads=num_heads))
        return layer, Kind(f"{num_nodes} nodes", num_nodes, is_tree=num_nodes > 1)
