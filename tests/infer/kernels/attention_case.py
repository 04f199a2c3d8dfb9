"""Attention cases: a pool whose unwritten slots are NaN (an engine's pool is never cleared), requests on it, queries.

Truth is the reference in float64 over the very numbers that the cache holds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from deepdraft.infer.kernels.attention import Attended, AttentionBackend
from deepdraft.infer.kernels.plan import AttentionPlan, LayerKv
from deepdraft.infer.kernels.reference import ReferenceAttention


@dataclass(frozen=True)
class Dims:
    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    is_latent: bool = False


EMBEDDED = Dims(4, 1, 64 + 16, 64, is_latent=True)
KIMI = Dims(3, 1, 512 + 64, 512, is_latent=True)
GQA = Dims(6, 2, 16, 16)
MHA = Dims(3, 3, 8, 8)
WIDE_KEYS = Dims(4, 2, 24, 8)
WIDE_VALUES = Dims(2, 1, 8, 24)
DIMS = (EMBEDDED, KIMI, GQA, MHA, WIDE_KEYS, WIDE_VALUES)


@dataclass(frozen=True)
class Case:
    queries: Tensor
    layer: LayerKv
    plan: AttentionPlan
    scale: float

    def attend(self, backend: AttentionBackend) -> Attended:
        return backend.attend(self.queries, self.layer, self.plan, scale=self.scale)

    def truth(self) -> Attended:
        return replace(self, queries=self.queries.double()).attend(ReferenceAttention())

    def with_masks(self, masks: Sequence[Tensor | None]) -> Case:
        return replace(self, plan=replace(self.plan, tail_masks=tuple(masks)))


def case(
    query_lens: Sequence[int],
    kv_lens: Sequence[int],
    *,
    dims: Dims = EMBEDDED,
    page_size: int = 16,
    is_shuffled: bool = False,
    tail_masks: Sequence[Tensor | None] | None = None,
    dtype: torch.dtype = torch.float32,
    cache_dtype: torch.dtype | None = None,
    seed: int = 0,
) -> Case:
    torch.manual_seed(seed)
    needed = [-(-kv_len // page_size) for kv_len in kv_lens]
    num_pages = sum(needed) + 2
    order = list(range(1, num_pages))
    if is_shuffled:
        random.Random(seed).shuffle(order)
    pages = [[order.pop(0) for _ in range(count)] for count in needed]
    plan = AttentionPlan.of(
        page_size=page_size, query_lens=query_lens, kv_lens=kv_lens, pages=pages, tail_masks=tail_masks
    )
    written = torch.cat(plan.slots)

    def rows(width: int) -> Tensor:
        pool = torch.full((num_pages * page_size, dims.num_kv_heads, width), torch.nan)
        pool[written] = torch.randn(len(written), dims.num_kv_heads, width)
        return pool.to(cache_dtype or dtype)

    keys = rows(dims.key_dim)
    values = keys[..., : dims.value_dim] if dims.is_latent else rows(dims.value_dim)
    queries = torch.randn(sum(query_lens), dims.num_heads, dims.key_dim, dtype=dtype)
    return Case(queries, LayerKv(keys, values, dims.is_latent), plan, dims.key_dim**-0.5)


@dataclass(frozen=True)
class Expansion:
    """A latent case's queries in the expanded form, and what expands its rows."""

    queries: Tensor
    key_up: Tensor
    value_up: Tensor

    def attend(self, backend: AttentionBackend, of: Case) -> Attended:
        return backend.attend_expanded(
            self.queries, of.layer, of.plan, key_up=self.key_up, value_up=self.value_up, scale=of.scale
        )

    def truth(self, of: Case) -> Attended:
        doubled = Expansion(self.queries.double(), self.key_up.double(), self.value_up.double())
        return doubled.attend(ReferenceAttention(), of)

    def absorbed(self, of: Case) -> Case:
        """The same attention with key_up folded into the queries; value_up is left to the caller."""
        plain_dim, latent_dim = self.key_up.shape[1:]
        latent = torch.einsum("thd,hdl->thl", self.queries[..., :plain_dim], self.key_up)
        rotary = self.queries[..., plain_dim:]
        assert latent_dim == of.layer.values.shape[-1]
        return replace(of, queries=torch.cat([latent, rotary], dim=-1))


def expansion(of: Case, *, plain_dim: int = 12, value_dim: int = 20, seed: int = 0) -> Expansion:
    torch.manual_seed(seed)
    num_rows, num_heads, key_dim = of.queries.shape
    latent_dim, dtype = of.layer.values.shape[-1], of.queries.dtype
    return Expansion(
        torch.randn(num_rows, num_heads, plain_dim + key_dim - latent_dim, dtype=dtype),
        torch.randn(num_heads, plain_dim, latent_dim, dtype=dtype) * latent_dim**-0.5,
        torch.randn(num_heads, value_dim, latent_dim, dtype=dtype) * latent_dim**-0.5,
    )


def random_tree(num_nodes: int, seed: int) -> list[int | None]:
    """Parents of nodes in order of creation; now and then a new root, as a forest has."""
    rng = random.Random(seed)
    return [
        rng.choice([None, *range(node)] if rng.random() < 0.2 else range(node)) if node else None
        for node in range(num_nodes)
    ]


def path(parents: Sequence[int | None], node: int) -> list[int]:
    """A node's ancestors from the root down, and itself."""
    parent = parents[node]
    return [*(path(parents, parent) if parent is not None else []), node]


def tree_mask(parents: Sequence[int | None]) -> Tensor:
    mask = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for node in range(len(parents)):
        mask[node, path(parents, node)] = True
    return mask


@st.composite
def cases(
    draw: st.DrawFn, *, dims: Sequence[Dims] = DIMS, dtype: torch.dtype = torch.float32, max_len: int = 400
) -> Case:
    """Decode, trees, chunks and whole prompts of several requests, mixed."""
    seed = draw(st.integers(0, 1 << 16))
    kv_lens, query_lens, masks = [], [], []
    for number in range(draw(st.integers(1, 4))):
        kv_lens.append(draw(st.integers(1, max_len)))
        kind = draw(st.sampled_from(("decode", "tree", "chunk", "prompt")))
        longest = min(kv_lens[-1], 40 if kind == "tree" else max_len)
        query_len = {"decode": 1, "prompt": kv_lens[-1]}.get(kind) or draw(st.integers(1, longest))
        query_lens.append(query_len)
        masks.append(tree_mask(random_tree(query_len, seed + number)) if kind == "tree" else None)
    return case(
        query_lens,
        kv_lens,
        dims=draw(st.sampled_from(dims)),
        page_size=draw(st.sampled_from((1, 3, 16, 64))),
        is_shuffled=draw(st.booleans()),
        tail_masks=masks,
        dtype=dtype,
        seed=seed,
    )


def assert_close(found: Attended, expected: Attended, atol: float) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other.double(), atol=atol, rtol=0)
