"""The least bytes that a decode round of the embedded model reads: for the `round` component's ceiling.

A plain step reads the weights that one token passes and its whole KV cache. A round with drafts reads at least as
much (more rows choose more experts, which is left out: the floor stays one), the drafter's weights, the output matrix
a second time, and the drafter's rows of its window.
"""

from __future__ import annotations

from pathlib import Path

from deepdraft.cost.floor import step_weight_bytes
from deepdraft.cost.model_json import model_shape
from deepdraft.infer.drafters.dflash import DflashDrafter
from deepdraft.infer.drafters.drafter import Drafter

FLOAT_BYTES = 4
_STORED_BYTES = 2
"""Of the embedded drafter's weights on disk, which are bfloat16."""


def plain_bytes(model_folder: Path, context_len: int) -> float:
    """Of a step with one row, all in float32."""
    shape = model_shape(model_folder / "config.json")
    stored = step_weight_bytes(shape) / shape.weight_bits * 8 * FLOAT_BYTES
    return stored + context_len * shape.kv_bytes_per_token(element_bytes=FLOAT_BYTES)


def drafting_bytes(model_folder: Path, drafter_folder: Path, drafter: Drafter, context_len: int) -> float:
    """What drafting adds to that."""
    shape = model_shape(model_folder / "config.json")
    weights = (drafter_folder / "model.safetensors").stat().st_size / _STORED_BYTES * FLOAT_BYTES
    window = drafter.window.window_len if isinstance(drafter, DflashDrafter) else None
    num_seen = context_len if window is None else min(window, context_len)
    rows = num_seen * sum(layer.bytes_per_token(FLOAT_BYTES) for layer in drafter.kv_layers)
    return weights + shape.hidden * shape.vocab_size * FLOAT_BYTES + rows
