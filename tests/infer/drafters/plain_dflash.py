"""DFlash written down a second time, straight from the paper and its authors' description: dense tensors, one
request, no pool, no pages, nothing joined, nothing of the package. The truth that the drafter is held against.

A `fault` makes one of the mistakes that are known from other implementations, so that a test can show it would be
seen. Shape letters: T context tokens, B block size, K tapped layers, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class PlainDflash:
    """One drafter's stored tensors and config.json; all is computed in `dtype`, rotary angles in float32."""

    def __init__(
        self, tensors: Mapping[str, Tensor], config: Mapping[str, Any], dtype: torch.dtype, fault: str | None = None
    ) -> None:
        self.tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
        self.config = config
        self.dtype = dtype
        self.fault = fault
        self.own = {**config, **config["dflash_config"]}

    def context_rows(self, taps: Tensor) -> list[tuple[Tensor, Tensor]]:
        """taps [T, K * H] of tokens 0 .. T - 1 to each layer's keys and values, [T, Hk, D]."""
        features = taps.to(self.dtype) @ self.tensors["fc.weight"].T
        if self.fault != "no hidden_norm":
            features = self._norm(features, "hidden_norm")
        return [self._keys_values(features, layer, first=0) for layer in range(self.config["num_hidden_layers"])]

    def logits(
        self,
        taps: Tensor,
        bonus_token_id: int,
        embedding: Tensor,
        output: Tensor,
        *,
        block_size: int | None = None,
        seen: Sequence[int] | None = None,
    ) -> Tensor:
        """[B - 1, V]; `seen`: context tokens that are attended to, all where it is None."""
        block_size = block_size or self.own["block_size"]
        start = len(taps)
        token_ids = [bonus_token_id] + [self.own["mask_token_id"]] * (block_size - 1)
        if self.fault == "MASK in slot 0":
            token_ids[0] = self.own["mask_token_id"]
        x = embedding[token_ids].to(self.dtype) * self.own.get("input_embedding_scale", 1.0)
        kept = list(range(start)) if seen is None else list(seen)
        for layer, (keys, values) in enumerate(self.context_rows(taps)):
            x = self._layer(x, layer, keys[kept], values[kept], start)
        x = self._norm(x, "norm")
        # A block's row predicts its own token: rows 1 .. B - 1, not 0 .. B - 2.
        x = x[:-1] if self.fault == "shifted rows" else x[1:]
        logits = x @ output.to(self.dtype).T * self.own.get("output_multiplier", 1.0)
        cap = self.own.get("final_logit_softcapping")
        return logits if cap is None else cap * (logits / cap).tanh()

    def _layer(self, x: Tensor, layer: int, keys: Tensor, values: Tensor, start: int) -> Tensor:
        name, block_size, head_dim = f"layers.{layer}", len(x), self.config["head_dim"]
        first = 0 if self.fault == "positions from 0" else start
        normed = self._norm(x, f"{name}.input_layernorm")
        own_keys, own_values = self._keys_values(normed, layer, first)
        q = self._linear(normed, f"{name}.self_attn.q_proj").unflatten(-1, (-1, head_dim))
        q = self._rotated(self._norm(q, f"{name}.self_attn.q_norm"), first)
        keys, values = torch.cat((keys, own_keys)), torch.cat((values, own_values))
        group_size = q.shape[1] // keys.shape[1]
        keys, values = keys.repeat_interleave(group_size, 1), values.repeat_interleave(group_size, 1)
        scores = torch.einsum("bhd,nhd->hbn", q, keys) / head_dim**0.5
        if self.config.get("is_causal") or self.fault == "causal":
            hidden = torch.ones(block_size, block_size, dtype=torch.bool).triu(1)
            scores[:, :, -block_size:] = scores[:, :, -block_size:].masked_fill(hidden, -torch.inf)
        attended = torch.einsum("hbn,nhd->bhd", scores.softmax(-1), values).reshape(block_size, -1)
        x = x + self._linear(attended, f"{name}.self_attn.o_proj")
        normed = self._norm(x, f"{name}.post_attention_layernorm")
        gate, up = (self._linear(normed, f"{name}.mlp.{part}_proj") for part in ("gate", "up"))
        return x + self._linear(gate * gate.sigmoid() * up, f"{name}.mlp.down_proj")

    def _keys_values(self, rows: Tensor, layer: int, first: int) -> tuple[Tensor, Tensor]:
        name, head_dim = f"layers.{layer}.self_attn", self.config["head_dim"]
        keys = self._linear(rows, f"{name}.k_proj").unflatten(-1, (-1, head_dim))
        values = self._linear(rows, f"{name}.v_proj").unflatten(-1, (-1, head_dim))
        if self.fault != "no k_norm":
            keys = self._norm(keys, f"{name}.k_norm")
        return self._rotated(keys, first), values

    def _linear(self, x: Tensor, name: str) -> Tensor:
        product = x @ self.tensors[f"{name}.weight"].T
        bias = self.tensors.get(f"{name}.bias")
        return product if bias is None else product + bias

    def _norm(self, x: Tensor, name: str) -> Tensor:
        mean_square = x.square().mean(-1, keepdim=True)
        return x / (mean_square + self.config["rms_norm_eps"]).sqrt() * self.tensors[f"{name}.weight"]

    def _rotated(self, x: Tensor, first: int) -> Tensor:
        """x [T, heads, D] at positions first, first + 1, ...: pairs half a head apart, as Hugging Face has them."""
        frequencies, factor = self._frequencies()
        positions = torch.arange(first, first + len(x), dtype=torch.float32)
        angles = positions[:, None] * frequencies
        cosines, sines = ((part * factor).to(self.dtype)[:, None] for part in (angles.cos(), angles.sin()))
        low, high = x.chunk(2, -1)
        return torch.cat((low * cosines - high * sines, high * cosines + low * sines), -1)

    def _frequencies(self) -> tuple[Tensor, float]:
        if "rope_scaling" in self.config:
            return _transformers_frequencies(self.config)
        exponents = torch.arange(0, self.config["head_dim"], 2, dtype=torch.float32) / self.config["head_dim"]
        return 1.0 / self.config["rope_theta"] ** exponents, 1.0


def _transformers_frequencies(config: Mapping[str, Any]) -> tuple[Tensor, float]:
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    names = (
        "hidden_size",
        "num_attention_heads",
        "head_dim",
        "rope_theta",
        "rope_scaling",
        "max_position_embeddings",
    )
    rotary = Qwen3RotaryEmbedding(Qwen3Config(**{name: config[name] for name in names}))
    return rotary.inv_freq.float(), float(rotary.attention_scaling)
