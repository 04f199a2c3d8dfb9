"""How many of the threads it may use a forward pass on a CPU computes with: all of them, or one.

A pass is some dozens of small steps a layer, and each that is shared among threads costs its hand-over: some
microseconds where the cores are free, milliseconds where something else has them. What there is to do in a layer
decides. Drafters and schedules are not known here.

The work of a layer is counted in numbers multiplied, those read beforehand counted as READ_ROWS multiplications each:

    work = W (T + r) + X (T K + r min(E, T K)) + sum over requests of n A (q G + r)

Letters: T rows of a pass, q of one request's, n its cached tokens; W weights of a layer that every row meets, X those
of one expert, K experts a row, E experts; A numbers cached a token and layer, G query heads that share them; r
READ_ROWS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from deepdraft.infer.config import GqaShape, MlaShape, ModelConfig
from deepdraft.infer.kernels.torch_backend import READ_ROWS

MIN_SHARED_WORK = 10_000_000
"""Work of a layer from which all threads compute. Measured with the embedded model on two quiet cores: two threads
take 1.00 times as long as one for 3 million (a plain step at 1k), 0.86 for 6 and 14 million, 0.80 for 19, and 0.55 to
0.65 from 40 million on. Where something else wants the cores, as a client on the same machine, short passes lose by
waiting for each other, so what gains little is not shared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSize:
    """What a layer has, for the work it makes: numbers of weights and of cached values."""

    common_weights: int
    """W"""
    expert_weights: int = 0
    """X; 0 without experts"""
    num_experts: int = 0
    num_experts_per_tok: int = 0
    kv_row_dim: int
    """A"""
    group_size: int
    """G"""

    @classmethod
    def of(cls, config: ModelConfig) -> LayerSize:
        """Of most layers of a model: those with experts, where it has such."""
        attention, hidden_size = config.attention, config.hidden_size
        if isinstance(attention, MlaShape):
            attention_weights = _mla_weights(attention, hidden_size)
            kv_row_dim, group_size = attention.kv_lora_rank + attention.qk_rope_head_dim, attention.num_qo_heads
        else:
            attention_weights = _gqa_weights(attention, hidden_size)
            kv_row_dim = 2 * attention.num_kv_heads * attention.head_dim
            group_size = attention.num_qo_heads // attention.num_kv_heads
        moe = config.moe
        if moe is None or moe.num_dense_layers >= config.num_layers:
            common = attention_weights + 3 * hidden_size * config.intermediate_size
            return cls(common_weights=common, kv_row_dim=kv_row_dim, group_size=group_size)
        expert = 3 * hidden_size * moe.moe_intermediate_size
        return cls(
            common_weights=attention_weights + moe.num_shared_experts * expert,
            expert_weights=expert,
            num_experts=moe.num_experts,
            num_experts_per_tok=moe.num_experts_per_tok,
            kv_row_dim=kv_row_dim,
            group_size=group_size,
        )

    def work(self, requests: Iterable[tuple[int, int]]) -> int:
        """Of one pass; each request's rows and cached tokens, its rows included."""
        num_rows, attended = 0, 0
        for query_len, kv_len in requests:
            num_rows += query_len
            attended += kv_len * (query_len * self.group_size + READ_ROWS)
        num_calls = num_rows * self.num_experts_per_tok
        num_read = min(self.num_experts, num_calls)
        return (
            self.common_weights * (num_rows + READ_ROWS)
            + self.expert_weights * (num_calls + READ_ROWS * num_read)
            + self.kv_row_dim * attended
        )


@contextmanager
def threads_for(work: int) -> Iterator[None]:
    """Within it torch, and the kernels that follow torch's number, compute with one thread where a layer's work is
    small. Otherwise, and where there is one thread anyway, nothing is set; what was set is set back."""
    allowed = torch.get_num_threads()
    if allowed == 1 or work >= MIN_SHARED_WORK:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(allowed)


def _mla_weights(shape: MlaShape, hidden_size: int) -> int:
    heads_dim = shape.num_qo_heads * (shape.qk_nope_head_dim + shape.qk_rope_head_dim)
    rank = shape.q_lora_rank
    to_queries = hidden_size * heads_dim if rank is None else rank * (hidden_size + heads_dim)
    to_rows = hidden_size * (shape.kv_lora_rank + shape.qk_rope_head_dim)
    up = shape.num_qo_heads * shape.kv_lora_rank * (shape.qk_nope_head_dim + shape.v_head_dim)
    return to_queries + to_rows + up + shape.num_qo_heads * shape.v_head_dim * hidden_size


def _gqa_weights(shape: GqaShape, hidden_size: int) -> int:
    return 2 * hidden_size * shape.head_dim * (shape.num_qo_heads + shape.num_kv_heads)
