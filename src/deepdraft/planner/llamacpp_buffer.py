"""llama.cpp's compute buffer: what one batch of its graph needs at worst, reserved when the context is made.

Source: llama.cpp of October 2026, src/llama-context.cpp (sched_reserve), src/llama-graph.cpp; the sums were fitted to
what its log says for dense models of the llama and gemma3 form, U tokens a batch: a row of every mask, and beside the
residual stream either one layer's MLP or, without flash attention, its scores. Mixtures of experts and recurrent
layers follow by analogy and are given a wider doubt.
"""

from __future__ import annotations

from deepdraft.cost.kv_family import Grouped
from deepdraft.planner.ledger import LedgerEntry
from deepdraft.planner.llamacpp_cache import LlamacppKv
from deepdraft.planner.settings import LlamacppSettings
from deepdraft.planner.shape import Shape

_NUM_COPIES = 4
"""Inputs are kept this many times where layers are split over several devices (GGML_SCHED_MAX_COPIES)."""


def compute_entry(shape: Shape, kv: LlamacppKv, settings: LlamacppSettings) -> LedgerEntry:
    """One device's buffer; each of several has its own."""
    num_bytes = compute_bytes(shape, kv, settings)
    is_plain = shape.num_experts == 0 and all(cache.kind in ("full", "window") for cache in kv.caches)
    return LedgerEntry(
        name="compute buffer",
        num_bytes=num_bytes,
        place="slack",
        certainty="estimate",
        source="--ubatch-size rows of the masks, the residual stream and the widest layer",
        error_bytes=num_bytes // (10 if is_plain else 2),
    )


def compute_bytes(shape: Shape, kv: LlamacppKv, settings: LlamacppSettings) -> int:
    """Bytes of the buffer as the log prints it."""
    num_tokens = min(settings.ubatch_size, settings.batch_size, kv.n_ctx)
    has_flash = settings.flash_attn is not False
    attended = [cache.num_cells for cache in kv.caches if cache.kind != "state"]
    masks = sum(attended) * num_tokens * (2 if has_flash else 4)
    if settings.num_devices > 1:
        masks *= _NUM_COPIES
    scores = 0 if has_flash else max(attended, default=0) * shape.num_qo_heads + shape.hidden + _kv_width(shape)
    widest = max(3 * shape.dense_mlp, _expert_width(shape), scores)
    return masks + num_tokens * 4 * (5 * shape.hidden + widest)


def output_bytes(shape: Shape, kv: LlamacppKv) -> int:
    """The buffer of logits that the server reads from, in host memory: a row a slot."""
    return kv.num_slots * shape.vocab_size * 4


def _kv_width(shape: Shape) -> int:
    """Numbers of a token's keys and values in the layer with most."""
    grouped = [each for each in shape.families if isinstance(each, Grouped)]
    return max((each.num_kv_heads * (each.key_dim + each.value_dim) for each in grouped), default=0)


def _expert_width(shape: Shape) -> int:
    """Numbers that a token's experts need at once: their inner rows, and twice what they give back."""
    return shape.num_experts_per_token * (shape.expert_mlp + 2 * (shape.moe_hidden or shape.hidden))
