"""One layer's attention over a small pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from deepdraft.infer.config import RopeShape
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kernels.reference import ReferenceAttention
from deepdraft.infer.kv.layout import KvLayout, LayerShape
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.layers.forward_pass import ForwardPass, all_queries
from deepdraft.infer.layers.rope import Rotary

PAGE_SIZE = 4


@dataclass
class OneLayer:
    """Requests of these lengths, all their tokens queries, each on pages of its own in falling order."""

    layer_shape: LayerShape
    rotary_dim: int
    lengths: Sequence[int]

    def __post_init__(self) -> None:
        num_pages = [-(-length // PAGE_SIZE) for length in self.lengths]
        self.pool = PagePool(KvLayout((self.layer_shape,), PAGE_SIZE, torch.float64), sum(num_pages))
        left = list(range(sum(num_pages)))
        pages = [[left.pop() for _ in range(count)] for count in num_pages]
        self.plan = AttentionPlan.of(page_size=PAGE_SIZE, query_lens=self.lengths, kv_lens=self.lengths, pages=pages)
        self.slots = torch.cat(self.plan.slots)
        positions = torch.cat([torch.arange(length) for length in self.lengths])
        self.turns = Rotary.of(RopeShape(theta=1000.0), self.rotary_dim).turns(positions, torch.float64).unsqueeze(1)

    def run(self, attention: Callable[..., Tensor], x: Tensor, many_from: int | None = None) -> Tensor:
        forward_pass = ForwardPass(self.slots, self.turns[:, 0], self.pool, ReferenceAttention())
        return attention(x, 0, forward_pass, all_queries(self.plan, self.turns[:, 0], many_from))


@pytest.fixture
def one_layer() -> type[OneLayer]:
    return OneLayer
