"""The one signature of attention over paged KV. Back ends: `reference` (the definition of right), `torch`.

Letters as in `plan`. Which back end runs is a setting of the engine, given to the model with each forward pass.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from deepdraft.infer.kernels.plan import AttentionPlan, LayerKv


class Attended(NamedTuple):
    """Attention's result, ready to be merged with attention over other keys."""

    out: Tensor
    """[T, Hq, Dv], in the queries' dtype"""
    lse: Tensor
    """[T, Hq] log of the sum of exponentials of the scaled scores (natural logarithm), float32 or wider"""


class AttentionBackend(Protocol):
    """Both methods take queries of all requests, [T, Hq, ...]; query head h reads key head h // (Hq / Hk)."""

    @property
    def name(self) -> str:
        """As in `--attention-backend` and /server_info."""

    def attend(self, queries: Tensor, layer: LayerKv, plan: AttentionPlan, *, scale: float) -> Attended:
        """softmax(scale * queries @ keys^T + mask) @ values; queries [T, Hq, Dk]. Softmax in float32 or wider."""

    def attend_expanded(
        self,
        queries: Tensor,
        layer: LayerKv,
        plan: AttentionPlan,
        *,
        key_up: Tensor,
        value_up: Tensor,
        scale: float,
    ) -> Attended:
        """Latent attention with keys and values expanded per head: cheaper than the absorbed form for many queries.

        queries [T, Hq, Dn + Dr] (the part without rotary embedding first); the layer is latent with Dk = L + Dr and
        Dv = L; key_up [Hq, Dn, L] and value_up [Hq, Dv', L] expand a latent row c to k = key_up @ c (followed by the
        row's own rotary part) and v = value_up @ c. Returns out [T, Hq, Dv'] with memory bounded whatever kv_len is.
        """
