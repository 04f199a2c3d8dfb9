"""DeepSeek-V4's caches in llama.cpp: windows, rows for 4 and for 128 tokens, an index, and compressors' states.

Each slot has cells of its own, even where the pool is unified: four slots take four times what one does. Rows are
keys alone, in the cache's type, index included; states are float32.

Source: llama.cpp of October 2026 (build 11549), src/llama-kv-cache-dsv4.cpp (constructors of llama_kv_cache_dsv4 and
llama_dsv4_comp_state), src/llama-kv-cache-iswa.cpp, src/llama-context.cpp (one type for keys and values). Left out:
states to roll back to (n_rs_seq), and a drafter's own cache.
"""

from __future__ import annotations

from deepdraft.cost.kv_dtype import FLOAT32
from deepdraft.cost.kv_family import KvFormat
from deepdraft.errors import UsageError
from deepdraft.planner.llamacpp_line import CacheKind, LlamacppCache, padded
from deepdraft.planner.v4_layers import V4Layers

_STATE_ROWS_4, _STATE_ROWS_128 = 8, 128


def v4_caches(
    layers: V4Layers, form: KvFormat, *, num_cells: int, num_slots: int, ubatch_len: int, swa_full: bool
) -> tuple[LlamacppCache, ...]:
    """In the order of the log. `num_cells`: tokens of one slot. Raises UsageError for two types, which the engine
    refuses."""
    if form.key != form.value:
        raise UsageError(
            f"DeepSeek-V4's keys hold its values: -ctk {form.key.name} and -ctv {form.value.name} must be the same"
        )
    window_cells = num_cells if swa_full else padded(min(num_cells, layers.window + ubatch_len))

    def rows(kind: CacheKind, cells: int, num_layers: int, width: int) -> LlamacppCache:
        return LlamacppCache(
            kind=kind,
            num_cells=cells,
            num_streams=num_slots,
            num_layers=num_layers,
            key_bytes=cells * num_slots * num_layers * form.key.row_bytes(width),
            value_bytes=0,
        )

    def states(num_rows: int, num_layers: int, width: int) -> LlamacppCache:
        each_bytes = num_rows * num_slots * num_layers * FLOAT32.row_bytes(width)
        return LlamacppCache(
            kind="state",
            num_cells=num_rows,
            num_streams=num_slots,
            num_layers=num_layers,
            key_bytes=each_bytes,
            value_bytes=each_bytes,
        )

    cells_4, cells_128 = padded(-(-num_cells // 4)), padded(-(-num_cells // 128))
    found = (
        rows("window", window_cells, layers.num_layers, layers.dim),
        rows("compressed", cells_4, layers.num_4, layers.dim),
        rows("compressed", cells_128, layers.num_128, layers.dim),
        rows("index", cells_4, layers.num_4, layers.index_dim),
        states(_STATE_ROWS_4, layers.num_4, 2 * layers.dim),
        states(_STATE_ROWS_128, layers.num_128, layers.dim),
        states(_STATE_ROWS_4, layers.num_4, 2 * layers.index_dim),
    )
    return tuple(cache for cache in found if cache.num_layers)
