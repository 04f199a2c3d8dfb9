"""The shape of a drafter and how it is trained, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterShape:
    """Everything that decides the sizes of a drafter's weights. Hidden size and vocabulary are the target's."""

    hidden_size: int
    vocab_size: int
    mask_token_id: int
    target_layers: tuple[int, ...]
    """0-based target layers whose OUTPUT is tapped."""
    num_target_layers: int
    num_layers: int = 3
    intermediate_size: int = 512
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 32
    block_size: int = 8
    """Rows of a draft pass: the bonus token and block_size - 1 masks."""
    draft_window: int = 512
    """Tokens of context before the bonus token that a block sees."""
    max_positions: int = 262144
    """Stated in the config: the target's longest context. Blocks see relative distances of at most the window."""
    rope_theta: float = 10000.0
    norm_eps: float = 1e-6

    @property
    def draft_len(self) -> int:
        """Tokens drafted in one pass."""
        return self.block_size - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """How long, how fast and on how much a drafter is trained. Learning rates are peaks."""

    seed: int = 20261129
    num_steps: int = 7500
    num_sequences: int = 6
    """Samples of a step."""
    num_anchors: int = 24
    """Blocks of a sample and step, all trained together."""
    long_frac: float = 0.2
    """Share of a step's samples that come after a long prompt, where there are any."""
    long_from_frac: float = 0.6
    """Share of the steps before the first one with long samples."""
    loss_gamma: float = 4.0
    muon_lr: float = 8e-3
    adamw_lr: float = 3e-3
    weight_decay: float = 0.05
    warmup_frac: float = 0.02
    max_grad_norm: float = 1.0
    matmul_dtype: str = "bfloat16"

    def lr_factor(self, step: int) -> float:
        """Share of the peak learning rate at a step (from 0): linear warm-up, then a straight line to zero."""
        warmup_steps = max(1, round(self.warmup_frac * self.num_steps))
        rising = (step + 1) / warmup_steps
        falling = (self.num_steps - step) / max(1, self.num_steps - warmup_steps)
        return min(1.0, rising, falling)
