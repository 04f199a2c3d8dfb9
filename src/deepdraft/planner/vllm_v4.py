"""DeepSeek-V4's caches in vLLM: pages of every layer, and what its attention allocates.

Blocks are of 256 tokens. Of one layer: compressed rows of 584 bytes (64 or 2 a block), an index of 132 bytes for 4
tokens, windows in blocks of 64 rows, and the compressors' states, kept as windows in float32 of 4 or 8 tokens a
block; every page rounded up to 576 bytes. A request's states and windows hold all tokens in flight, so what it takes
whatever its length follows from max_num_batched_tokens.

Source: vLLM 0.32.0, models/deepseek_v4/{attention,compressor,sparse_mla}.py and nvidia/flashmla.py,
v1/attention/backends/mla/{sparse_swa,indexer}.py, model_executor/layers/sparse_attn_indexer.py. The rows are those of
the default back ends (FlashMLA, and FlashInfer on SM120). Left out: FLASHINFER_MLA_SPARSE_DSV4 on SM100, which keeps
plain rows, an index in MXFP4, DSpark drafters, HiSparse and images.
"""

from __future__ import annotations

from collections.abc import Iterable

from deepdraft.cost.kv_family import Compressed, Family, Index, Recurrent
from deepdraft.errors import UsageError
from deepdraft.planner.v4_layers import V4Layers
from deepdraft.planner.vllm_blocks import BlockLayout
from deepdraft.planner.vllm_packed import Bucket, packed_layout

BLOCK_LEN = 256
KV_CACHE_DTYPE = "fp8_ds_mla"
_ALIGNMENT = 576
_SCALE_BYTES = 8
_STATE_BYTES = 4
_WINDOW_BLOCK_LEN = 64
_STATE_BLOCK_LEN_4, _STATE_BLOCK_LEN_128 = 4, 8
_PREFILL_REQUESTS = 4
_TOPK_ALIGNMENT = 128
_INDEX_ROWS_A_TOKEN = 8
_LONG_CONTEXT_LEN = 256 * 1024
_LOGITS_BYTES = 512 * 2**20


def v4_layout(layers: V4Layers, *, pp_size: int, block_len: int, in_flight_len: int, num_draft: int) -> BlockLayout:
    """Of one rank, a drafter's windows among the layers. Raises UsageError for blocks that its kernels can't read."""
    if block_len % BLOCK_LEN:
        raise UsageError(f"--block-size {block_len}: DeepSeek-V4's blocks are of 256 tokens", hint="leave it out")
    row = layers.dim + layers.rope_dim + _SCALE_BYTES
    index = layers.index_dim + layers.index_dim // 128 * 4
    num_4, num_128 = -(-layers.num_4 // pp_size), -(-layers.num_128 // pp_size)
    buckets = (
        _bucket(
            block_len, None,
            (block_len // 4 * row, num_4), (block_len // 4 * index, num_4), (block_len // 128 * row, num_128),
        ),
        _bucket(_WINDOW_BLOCK_LEN, layers.window, (_WINDOW_BLOCK_LEN * row, -(-layers.num_layers // pp_size))),
        _bucket(
            _STATE_BLOCK_LEN_4, 2 * 4,
            (_STATE_BLOCK_LEN_4 * layers.state_dim(4) * _STATE_BYTES, num_4),
            (_STATE_BLOCK_LEN_4 * layers.index_state_dim * _STATE_BYTES, num_4),
        ),
        _bucket(
            _STATE_BLOCK_LEN_128, 128, (_STATE_BLOCK_LEN_128 * layers.state_dim(128) * _STATE_BYTES, num_128)
        ),
    )  # fmt: skip
    return packed_layout(
        [each for each in buckets if each.num_layers],
        block_len=block_len,
        in_flight_len=in_flight_len,
        num_draft=num_draft,
    )


def check_v4_dtype(kv_cache_dtype: str) -> None:
    """Raise UsageError for a type that its rows have not, as the engine does."""
    if kv_cache_dtype != "auto" and not kv_cache_dtype.startswith("fp8"):
        raise UsageError(
            f"--kv-cache-dtype {kv_cache_dtype}: DeepSeek-V4's rows are packed fp8 in vLLM", hint="leave it out"
        )


def check_v4_drafter(families: Iterable[Family]) -> None:
    """Raise UsageError for a drafter whose cache can't stand beside these layers here."""
    if any(not isinstance(each, Compressed | Index | Recurrent) for each in families):
        raise UsageError("vLLM drafts for DeepSeek-V4 with its own prediction layers", hint="--drafter mtp")


def workspace_bytes(layers: V4Layers, *, max_len: int, num_batched: int, topk: int, is_flashmla: bool) -> int:
    """Of the profile run: one buffer that prefill attention and the index take turns with, and the index's scores.

    Attention gathers 4 requests' rows of ratio 4, windows and a chunk in bfloat16, and a chunk's choices of rows; the
    index gathers keys of 40 (16 above 256k) times the context limit.
    """
    gathered = 0
    if is_flashmla:
        rows = -(-max_len // 4) + layers.window + num_batched
        width = _rounded_up(topk + layers.window, _TOPK_ALIGNMENT)
        gathered = _PREFILL_REQUESTS * rows * layers.dim * 2 + num_batched * (width + 1) * 4
    if not layers.num_4:
        return gathered
    factor = 5 if max_len <= _LONG_CONTEXT_LEN else 2
    keys = max_len * _INDEX_ROWS_A_TOKEN * factor // 4 * (layers.index_dim + 4)
    return max(gathered, keys) + _LOGITS_BYTES


def late_bytes(layers: V4Layers, *, max_len: int, num_batched: int) -> int:
    """Allocated after the pool was sized: places of all rows of ratio 128 for every token of a batch, once for decode
    and once for prefill, in int32."""
    if not layers.num_128:
        return 0
    num_rows = _rounded_up(_rounded_up(max_len, 128) // 128, _TOPK_ALIGNMENT)
    return 2 * num_batched * num_rows * 4


def _bucket(block_len: int, window: int | None, *pages: tuple[int, int]) -> Bucket:
    num_layers: dict[int, int] = {}
    for page_bytes, count in pages:
        aligned = _rounded_up(page_bytes, _ALIGNMENT)
        if count:
            num_layers[aligned] = num_layers.get(aligned, 0) + count
    return Bucket(block_len=block_len, window=window, num_layers=num_layers)


def _rounded_up(number: int, step: int) -> int:
    return -(-number // step) * step
