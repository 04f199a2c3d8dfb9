"""The loss of drafted blocks: cross-entropy to what the target wrote, the nearer tokens weighing more.

Shape letters: N blocks, L drafted tokens of a block, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.infer.drafter_training.blocks import NO_LABEL


def depth_weights(draft_len: int, gamma: float) -> Tensor:
    """w_k = exp(-(k - 1) / gamma) of depths k = 1 ... draft_len (DFlash, arXiv 2602.06036): float32 [L]."""
    return torch.exp(-torch.arange(draft_len, dtype=torch.float32) / gamma)


def block_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean over the drafted tokens that have a label, in nats: logits [N, L, V], labels int64 [N, L],
    weights [L]."""
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NO_LABEL, reduction="none")
    shares = (labels != NO_LABEL) * weights
    return (losses.view_as(labels) * shares).sum() / shares.sum().clamp(min=1e-9)
