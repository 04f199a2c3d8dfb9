"""DeepSeek-V4 in SGLang 0.5.23: bytes of its rows, states and tokens. `sglang_v4_pool` has the pools.

Pages are of 256 tokens. A token of the pool costs its share of the compressed rows of all layers, and `swa_ratio`
tokens of a second, smaller pool for windows; the compressors' states of ratio 128 go with requests and are taken out
of the budget first:

    pool   (budget - states of ratio 128) / bytes of a token, in whole pages
    token  swa_ratio x (row x layers + states of ratio 4) + (row + index) / 4 x layers + row / 128 x layers

Speculation raises the token by (layers + 1) / layers. On AMD with SGLANG_HACK_FLASHMLA_BACKEND=unified_kv_triton
(unified KV) windows and all states are rings of running requests, and a token costs its compressed rows alone.

A window pool capped by the running requests is in this version too, but DeepSeek-V4 can't reach it: its model
override sets the ratio (0.1), which then counts as given. It is for DeepSeek-V4.1, which is not known here.
Sources: model_executor/pool_configurator.py (DSV4PoolConfigurator), mem_cache/deepseek_v4_memory_pool.py and
deepseek_v4_compress_state.py, arg_groups/model_overrides/deepseek_v4.py and deepseek_v4_hook.py, and
kernels/ops/attention/dsv4/kv_layout.py of 0.5.23. Left out: HiSparse, pools for disaggregation, online compression
(SGLANG_OPT_USE_ONLINE_COMPRESS) and the other row layouts (SGLANG_DSV4_KV_LAYOUT).
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.planner.v4_layers import Ratio, V4Layers

PAGE_SIZE = 256
DEFAULT_MAX_RUNNING = 256
DEFAULT_WINDOW_RATIO = 0.1
NUM_DRAFT_LAYERS = 1
"""The budget's allowance for a drafter, and what the prediction layer keeps: a window alone."""
_PAGE_ALIGNMENT = 576
_SCALE_BYTES = 8
_STATE_BYTES = 4
_PACKED_NOPE_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class V4Form:
    """A deployment as far as DeepSeek-V4's pools depend on it."""

    layers: V4Layers
    """Of one pipeline stage."""
    window_ratio: float
    """Tokens of the windows' pool for each of the whole pool's."""
    num_requests: int
    """Requests that may run on one rank, as asked for."""
    num_draft_tokens: int = 0
    """0 without speculation."""
    has_uniform_rows: bool = False
    """--dsv4-attn-backend trtllm: a byte a number, and no scales."""
    is_unified: bool = False
    is_unified_fp8: bool = False
    """SGLANG_DSV4_UNIFIED_KV_FP8=1, of AMD's gfx95."""

    @property
    def inflation(self) -> float:
        """What speculation multiplies a token by."""
        if not self.num_draft_tokens:
            return 1.0
        return (self.layers.num_layers + NUM_DRAFT_LAYERS) / self.layers.num_layers

    def ring_len(self, ratio: Ratio) -> int:
        """Tokens that a compressor keeps of a request, draft tokens included."""
        groups = 2 if ratio == 4 else 1
        return ratio * groups * (2 if self.num_draft_tokens else 1)

    @property
    def most_draft_tokens(self) -> int:
        """Draft tokens that every compressor's ring holds beside its open groups (get_compress_state_write_pad)."""
        return (10 if self.layers.num_4 else 130) if self.layers.num_4 or self.layers.num_128 else 2**31

    @property
    def window_ring_len(self) -> int:
        """Of a unified pool: rows of a request's window, and room for draft tokens."""
        return self.layers.window + max(self.num_draft_tokens - 1, 0)

    def row_bytes(self, ratio: int = 1) -> float:
        """One row of one layer; with what a page is padded by, which is most for the two rows of 128's pages."""
        if self.is_unified:
            nope_bytes = 2 * (self.layers.dim - self.layers.rope_dim)
            return (_PACKED_NOPE_BYTES if self.is_unified_fp8 else nope_bytes) + 2 * self.layers.rope_dim
        if self.has_uniform_rows:
            return self.layers.dim
        num_rows = PAGE_SIZE // ratio
        plain = num_rows * (self.layers.dim + self.layers.rope_dim + _SCALE_BYTES)
        return -(-plain // _PAGE_ALIGNMENT) * _PAGE_ALIGNMENT / num_rows

    @property
    def index_bytes(self) -> int:
        """An index's row: a byte a number, and a scale for 128."""
        return self.layers.index_dim + self.layers.index_dim // 128 * 4

    @property
    def window_token_bytes(self) -> float:
        """One token of the windows' pool, in all layers, with its share of the states of ratio 4."""
        layers = self.layers
        state = (layers.state_dim(4) + layers.index_state_dim) * _STATE_BYTES
        ring = self.ring_len(4) / PAGE_SIZE if layers.num_4 else 0.0
        return self.row_bytes() * layers.num_layers + ring * state * layers.num_4

    @property
    def token_bytes(self) -> float:
        """One token of the pool, before speculation."""
        layers = self.layers
        windows = 0.0 if self.is_unified else self.window_ratio * self.window_token_bytes
        by_4 = (1 / 4 * self.row_bytes(4) + 1 / 4 * self.index_bytes) * layers.num_4
        return windows + (by_4 + 1 / 128 * self.row_bytes(128) * layers.num_128)

    @property
    def draft_token_bytes(self) -> float:
        """What the drafter's window truly takes for a token of the pool."""
        if not self.num_draft_tokens or self.is_unified:
            return 0.0
        return self.window_ratio * self.row_bytes() * NUM_DRAFT_LAYERS

    def fixed_bytes(self, num_requests: int) -> int:
        """Taken out of the budget for that many requests."""
        rings = self.window_ring_bytes(num_requests) + self.state_bytes(4, num_requests) if self.is_unified else 0
        return self.state_bytes(128, num_requests) + rings

    @property
    def request_bytes(self) -> int:
        """What a running request holds whatever its length: its ring of states, and its window."""
        if self.is_unified:
            return self.fixed_bytes(1) - self.fixed_bytes(0)
        state = self.ring_len(128) * self.layers.state_dim(128) * _STATE_BYTES * self.layers.num_128
        return state + round(self.layers.window * self.window_token_bytes)

    def window_ring_bytes(self, num_requests: int) -> int:
        """Of a unified pool."""
        rows = (num_requests + 1) * self.window_ring_len * self.row_bytes() * self.layers.num_layers
        return int(rows * self.inflation)

    def state_bytes(self, ratio: Ratio, num_requests: int) -> int:
        """Compressors' states that go with requests: one more than run, and one more ring."""
        return self.state_rows_bytes(ratio, (num_requests + 1) * self.ring_len(ratio))

    def state_rows_bytes(self, ratio: Ratio, num_rows: int) -> int:
        """Of so many rows for requests or pages, as they are allocated: one ring more, in whole groups."""
        if not self.layers.num_of(ratio):
            return 0
        rows = -(-(num_rows + self.ring_len(ratio) + 1) // ratio) * ratio
        width = self.layers.state_dim(ratio) + (self.layers.index_state_dim if ratio == 4 else 0)
        return rows * width * _STATE_BYTES * self.layers.num_of(ratio)
