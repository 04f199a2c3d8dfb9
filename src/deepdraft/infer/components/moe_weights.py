"""A mixture-of-experts layer of a given shape with random weights, built as a checkpoint's is, and the same layer in
plain torch and in transformers.

Shape letters: T rows, H hidden, I inner width, E experts, K experts a token.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.infer.config import MlaShape, ModelConfig, MoeShape, RopeShape
from deepdraft.infer.layers.experts import Moe
from deepdraft.infer.models.deepseek_v3 import deepseek_v3
from deepdraft.infer.models.weights import Weights

_VOCAB_SIZE, _HEAD_DIM = 8, 2
"""Of the rest of the model around the layer, which never runs."""
_LAYER = "model.layers.0.mlp."


@dataclass(frozen=True)
class MoeLayer:
    """Shape and weights. A weight is a function of its name alone, so it need not be kept."""

    hidden_size: int
    shape: MoeShape
    _kept: dict[str, Tensor] = field(default_factory=dict)

    @property
    def expert_bytes(self) -> int:
        """Of one expert in float32."""
        return expert_bytes(self.hidden_size, self.shape.moe_intermediate_size)

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """By Hugging Face's name, as `TensorSource` has it; of a size that keeps the layer's output near 1."""
        rows = self._dims(name)
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        drawn = torch.randn(*rows, generator=generator)
        return (drawn / math.sqrt(rows[-1]) if len(rows) > 1 else drawn * 0.01).to(dtype or torch.float32)

    def ours(self) -> Moe:
        """The product's layer, by the way a checkpoint takes."""
        config = ModelConfig(
            model_type="deepseek_v3",
            vocab_size=_VOCAB_SIZE,
            hidden_size=self.hidden_size,
            intermediate_size=_HEAD_DIM,
            num_layers=1,
            rms_norm_eps=1e-6,
            attention=_ATTENTION,
            moe=self.shape,
            rope=RopeShape(theta=1e4),
            max_context_len=_VOCAB_SIZE,
            has_tied_embeddings=True,
            dtype="float32",
            eos_token_ids=(),
            bos_token_id=None,
        )
        model = deepseek_v3(config, _ATTENTION, Weights(self, torch.float32, torch.device("cpu")))
        layer = model.layers[0].feed_forward
        assert isinstance(layer, Moe)
        return layer

    def chosen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Experts [T, K] and their weights [T, K] for x [T, H], without groups."""
        scores = F.linear(x, self._keep("gate.weight")).sigmoid()
        ranks = scores + self._keep("gate.e_score_correction_bias")
        experts = ranks.topk(self.shape.num_experts_per_tok, dim=-1).indices
        weights = scores.gather(-1, experts)
        if self.shape.norm_topk_prob:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return experts, weights * self.shape.routed_scaling_factor

    def torch_loop(self) -> Callable[[Tensor], Tensor]:
        """One expert after the other, each over the rows that chose it: the layer in plain torch."""
        gates, ups, downs = (
            [self.tensor(f"{_LAYER}experts.{index}.{part}.weight") for index in range(self.shape.num_experts)]
            for part in ("gate_proj", "up_proj", "down_proj")
        )
        shared = [self._keep(f"shared_experts.{part}.weight") for part in ("gate_proj", "up_proj", "down_proj")]

        def run(x: Tensor) -> Tensor:
            experts, weights = self.chosen(x)
            out = _mlp(x, *shared) if self.shape.num_shared_experts else torch.zeros_like(x)
            for expert in sorted({expert for row in experts.tolist() for expert in row}):
                rows, places = (experts == expert).nonzero(as_tuple=True)
                found = _mlp(x[rows], gates[expert], ups[expert], downs[expert])
                out.index_add_(0, rows, found * weights[rows, places, None])
            return out

        return run

    def transformers(self) -> Callable[[Tensor], Tensor] | None:
        """transformers' DeepseekV3MoE with the same weights; None where it isn't installed or has another form."""
        if importlib.util.find_spec("transformers") is None:
            return None
        library: Any = importlib.import_module("transformers")
        config: Any = library.DeepseekV3Config(
            hidden_size=self.hidden_size,
            moe_intermediate_size=self.shape.moe_intermediate_size,
            n_routed_experts=self.shape.num_experts,
            num_experts_per_tok=self.shape.num_experts_per_tok,
            n_shared_experts=self.shape.num_shared_experts,
            n_group=self.shape.num_groups,
            topk_group=self.shape.num_groups_per_tok,
            norm_topk_prob=self.shape.norm_topk_prob,
            routed_scaling_factor=self.shape.routed_scaling_factor,
            **_AROUND_THEIRS,
        )
        # A whole model, as from_pretrained makes it: it chooses how experts are computed.
        layer: Any = library.DeepseekV3ForCausalLM(config).eval().model.layers[0].mlp
        if not hasattr(layer.experts, "gate_up_proj"):
            return None
        with torch.no_grad():
            self._fill(layer)

        def run(x: Tensor) -> Tensor:
            found: Tensor = layer(x[None])[0]
            return found

        return run

    def _fill(self, layer: Any) -> None:
        layer.gate.weight.copy_(self._keep("gate.weight"))
        layer.gate.e_score_correction_bias.copy_(self._keep("gate.e_score_correction_bias"))
        for part in ("gate_proj", "up_proj", "down_proj"):
            getattr(layer.shared_experts, part).weight.copy_(self._keep(f"shared_experts.{part}.weight"))
        width = self.shape.moe_intermediate_size
        for index in range(self.shape.num_experts):
            prefix = f"{_LAYER}experts.{index}."
            layer.experts.gate_up_proj[index, :width] = self.tensor(f"{prefix}gate_proj.weight")
            layer.experts.gate_up_proj[index, width:] = self.tensor(f"{prefix}up_proj.weight")
            layer.experts.down_proj[index] = self.tensor(f"{prefix}down_proj.weight")

    def _keep(self, name: str) -> Tensor:
        """A weight that every row needs."""
        if name not in self._kept:
            self._kept[name] = self.tensor(_LAYER + name)
        return self._kept[name]

    def _dims(self, name: str) -> tuple[int, ...]:
        hidden, width, num_experts = self.hidden_size, self.shape.moe_intermediate_size, self.shape.num_experts
        part = name.removeprefix(_LAYER)
        if part == name:
            return _around(name, hidden)
        if part == "gate.weight":
            return num_experts, hidden
        if part == "gate.e_score_correction_bias":
            return (num_experts,)
        if part.startswith("shared_experts."):
            width *= self.shape.num_shared_experts
        return (hidden, width) if "down_proj" in part else (width, hidden)


def expert_bytes(hidden_size: int, inner_size: int) -> int:
    """Of one expert's three matrices in float32."""
    return 3 * hidden_size * inner_size * 4


_ATTENTION = MlaShape(
    num_qo_heads=1,
    q_lora_rank=None,
    kv_lora_rank=_HEAD_DIM,
    qk_nope_head_dim=_HEAD_DIM,
    qk_rope_head_dim=_HEAD_DIM,
    v_head_dim=_HEAD_DIM,
)


_AROUND_THEIRS = {
    "vocab_size": _VOCAB_SIZE,
    "intermediate_size": _HEAD_DIM,
    "num_hidden_layers": 1,
    "first_k_dense_replace": 0,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "q_lora_rank": None,
    "kv_lora_rank": _HEAD_DIM,
    "qk_nope_head_dim": _HEAD_DIM,
    "qk_rope_head_dim": _HEAD_DIM,
    "v_head_dim": _HEAD_DIM,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
"""The rest of transformers' model, as small."""


def _around(name: str, hidden: int) -> tuple[int, ...]:
    """The shapes of what is not the layer."""
    kind = re.sub(r"^model\.(layers\.0\.)?(self_attn\.)?|\.weight$", "", name)
    return {
        "embed_tokens": (_VOCAB_SIZE, hidden),
        "norm": (hidden,),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "q_proj": (2 * _HEAD_DIM, hidden),
        "kv_a_proj_with_mqa": (2 * _HEAD_DIM, hidden),
        "kv_a_layernorm": (_HEAD_DIM,),
        "kv_b_proj": (2 * _HEAD_DIM, _HEAD_DIM),
        "o_proj": (hidden, _HEAD_DIM),
    }[kind]


def _mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
