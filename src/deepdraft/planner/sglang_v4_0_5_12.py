"""DeepSeek-V4's token in SGLang up to 0.5.12: as in 0.5.23, but pages are not padded in the count, states of ratio
128 go with windows of 128 tokens as those of 4 do, nothing is fixed per request, and the prediction layer's ratio at
the end of compress_ratios counts as one layer more.

Source: model_executor/pool_configurator.py (DSV4PoolConfigurator) of 0.5.12.post1.
"""

from __future__ import annotations

from deepdraft.planner.sglang_v4 import NUM_DRAFT_LAYERS, V4Form

_SCALE_BYTES = 8
_STATE_BYTES = 4


def v4_token_bytes(form: V4Form, num_mtp_layers: int) -> float:
    """One token of the pool, before speculation."""
    layers = form.layers
    row_bytes = layers.dim + layers.rope_dim + _SCALE_BYTES
    states_4 = form.ring_len(4) * (layers.state_dim(4) + layers.index_state_dim) * layers.num_4
    states_128 = form.ring_len(128) * layers.state_dim(128) * layers.num_128
    a_window = row_bytes * (layers.num_layers + num_mtp_layers) + (
        (states_4 + states_128) * _STATE_BYTES / layers.window
    )
    rows = row_bytes * (layers.num_4 / 4 + layers.num_128 / 128) + form.index_bytes * layers.num_4 / 4
    return form.window_ratio * a_window + rows


def v4_inflation(form: V4Form, num_mtp_layers: int) -> float:
    """What speculation multiplies a token by."""
    num_layers = form.layers.num_layers + num_mtp_layers
    return (num_layers + NUM_DRAFT_LAYERS) / num_layers if form.num_draft_tokens else 1.0
