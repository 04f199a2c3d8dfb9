"""Rotary position embedding (Su et al., arXiv 2104.09864): frequencies of every kind, and the rotation itself.

A pair of numbers is turned by an angle, which is one multiplication of complex numbers. So the layers keep the two of
a pair side by side (DeepSeek's layout); weights of a checkpoint whose pairs are half a head apart (Hugging Face's
Llama) are put in that order once, when they are loaded (`adjacent_pairs`). Scores are the same in either layout, as
queries and keys are permuted alike.

Angles are float32 whatever the model's dtype, as in the implementations that models are trained with. Cosines and
sines are computed for the positions of a pass: a table for 256k positions would cost more than it saves.

Shape letters: T tokens, D rotary dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from deepdraft.infer.config import RopeShape
from deepdraft.infer.errors import UnsupportedModel

_DEFAULT_BETA_FAST = 32.0
_DEFAULT_BETA_SLOW = 1.0
_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


@dataclass(frozen=True, slots=True, eq=False)
class Rotary:
    """One model's rotary embedding."""

    inverse_frequencies: Tensor
    """float32 [D / 2], radians per position"""
    attention_factor: float
    """Both queries and keys are multiplied by it (YaRN, arXiv 2309.00071, 3.4)."""

    @classmethod
    def of(cls, rope: RopeShape, dim: int, device: torch.device | None = None) -> Rotary:
        """The embedding of `dim` dimensions. Raises UnsupportedModel for an unknown kind or a field it lacks."""
        return cls(inverse_frequencies(rope, dim).to(device), attention_factor(rope))

    def turns(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Complex [T, D / 2] for int64 positions [T]: complex128 for a float64 model, else complex64."""
        wide = torch.promote_types(dtype, torch.float32)
        angles = positions.to(torch.float32)[:, None] * self.inverse_frequencies
        cosines, sines = angles.cos() * self.attention_factor, angles.sin() * self.attention_factor
        return torch.complex(cosines.to(wide), sines.to(wide))


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """x [..., D] with its pairs (0, 1), (2, 3) ... turned; turns [..., D / 2] broadcast. Keeps x's dtype.

    x may be a slice of a wider tensor whose strides, and where it starts, are even.
    """
    if x.dtype not in _COMPLEX:
        return rotate(x.float(), turns).to(x.dtype)
    return (x.view(_COMPLEX[x.dtype]) * turns).view(x.dtype)  # a pair of numbers seen as one complex number


def adjacent_pairs(dim: int) -> Tensor:
    """int64 [D]: the order that brings pairs from half a head apart, (i, i + D / 2), side by side."""
    return torch.arange(dim).view(2, -1).T.reshape(-1)


def inverse_frequencies(rope: RopeShape, dim: int) -> Tensor:
    """float32 [D / 2]: theta^(-2i / D), scaled as the kind says."""
    # The scaled kinds are computed in float32 with transformers' order of operations: angles at position 100,000
    # would show a difference in the last bit.
    periods = rope.theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    plain = 1.0 / periods
    match rope.kind:
        case "default":
            return plain
        case "linear":
            return plain / _stated(rope.factor, "factor")
        case "llama3":
            return _llama3(rope, plain)
        case "yarn":
            return _yarn(rope, periods, dim)
    raise UnsupportedModel("rope_scaling.rope_type", rope.kind, reason="no such scaling of rotary positions is known")


def attention_factor(rope: RopeShape) -> float:
    """What YaRN multiplies queries and keys by; 1 for the other kinds.

    DeepSeek's rule: where mscale and mscale_all_dim are both given, the quotient of their factors.
    """
    if rope.kind != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    factor = _stated(rope.factor, "factor")
    if rope.mscale and rope.mscale_all_dim:
        return _mscale(factor, rope.mscale) / _mscale(factor, rope.mscale_all_dim)
    return _mscale(factor, 1.0)


def softmax_factor(rope: RopeShape) -> float:
    """What latent attention multiplies its softmax scale by: DeepSeek puts mscale_all_dim there, squared."""
    if rope.kind != "yarn" or not rope.mscale_all_dim:
        return 1.0
    return _mscale(_stated(rope.factor, "factor"), rope.mscale_all_dim) ** 2


def _mscale(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _llama3(rope: RopeShape, plain: Tensor) -> Tensor:
    """Llama 3.1: long waves divided by the factor, short ones kept, a smooth passage between."""
    factor = _stated(rope.factor, "factor")
    low = _stated(rope.low_freq_factor, "low_freq_factor")
    high = _stated(rope.high_freq_factor, "high_freq_factor")
    original_len = _stated(rope.original_max_position_embeddings, "original_max_position_embeddings")
    wavelengths = 2 * math.pi / plain
    smooth = (original_len / wavelengths - low) / (high - low)
    passage = (1 - smooth) * plain / factor + smooth * plain
    scaled = torch.where(wavelengths > original_len / low, plain / factor, plain)
    is_between = (wavelengths >= original_len / high) & (wavelengths <= original_len / low)
    return torch.where(is_between, passage, scaled)


def _yarn(rope: RopeShape, periods: Tensor, dim: int) -> Tensor:
    """YaRN: dimensions that turn often keep their frequency, those that turn less than once are interpolated."""
    factor = _stated(rope.factor, "factor")
    original_len = _stated(rope.original_max_position_embeddings, "original_max_position_embeddings")

    def dimension_turning(num_turns: float) -> float:
        return dim * math.log(original_len / (num_turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low = dimension_turning(rope.beta_fast or _DEFAULT_BETA_FAST)
    high = dimension_turning(rope.beta_slow or _DEFAULT_BETA_SLOW)
    if rope.is_truncated:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001  # a step instead of a division by zero
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    kept = 1 - ramp
    return 1.0 / (factor * periods) * (1 - kept) + 1.0 / periods * kept


def _stated(value: float | None, field: str) -> float:
    if value is None:
        raise UnsupportedModel(f"rope_scaling.{field}", None, reason="this scaling of rotary positions needs it")
    return value
