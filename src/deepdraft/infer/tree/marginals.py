"""What a drafter holds likely at each depth: few candidates, best first, on the host.

A block-diffusion drafter gives one distribution for each depth, independent of what stands at the other depths; a
tree is built of their products. A drafter without probabilities (prompt lookup) makes up log-probabilities that order
its candidates. Leaves out how logits come about, and temperature: a drafter that drafts for sampling hands over
logits / T + noise.

Shape letters: R requests, L depths, V vocabulary, K candidates of a depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Marginals:
    """One request's candidates of depths 1 to L, best first, the tokens of a depth distinct."""

    log_probs: NDArray[np.float32]
    """[L, K], natural logarithm, at most 0 and falling along K; -inf: not to be drafted."""
    token_ids: NDArray[np.int64]
    """[L, K]"""

    def __post_init__(self) -> None:
        if self.log_probs.ndim != 2 or self.log_probs.shape != self.token_ids.shape:
            raise ValueError(f"log_probs {self.log_probs.shape} and token_ids {self.token_ids.shape} must be [L, K]")

    @property
    def draft_len(self) -> int:
        """L, the deepest draft."""
        return len(self.log_probs)


NOTHING = Marginals(np.zeros((0, 1), dtype=np.float32), np.zeros((0, 1), dtype=np.int64))
"""Of a drafter that has nothing to propose."""


def marginals(logits: Tensor, top_k: int) -> tuple[Marginals, ...]:
    """The `top_k` likeliest tokens of each depth (all of a smaller vocabulary); logits float [R, L, V], R results.

    Probabilities are over the whole vocabulary, in float32. Equal ones are in order of their token ids; which of
    several that tie for the last place is taken is up to the device. One copy to the host for all requests, and no
    sort of the vocabulary.

    Raises ValueError for a top_k below 1.
    """
    if top_k < 1:
        raise ValueError(f"top_k must be 1 or more: {top_k}")
    # On a CPU log_softmax takes half as long as logsumexp, though it writes as much as it reads.
    top = logits.log_softmax(dim=-1, dtype=torch.float32).topk(min(top_k, logits.shape[-1]))
    # As bits of one integer type both go over in one copy.
    both = torch.stack((top.values.view(torch.int32), top.indices.to(torch.int32))).cpu().numpy()
    found, token_ids = both[0].view(np.float32), both[1].astype(np.int64)
    if (found[..., 1:] == found[..., :-1]).any():
        order = np.lexsort((token_ids, -found))
        found, token_ids = np.take_along_axis(found, order, -1), np.take_along_axis(token_ids, order, -1)
    return tuple(Marginals(found[row], token_ids[row]) for row in range(len(found)))
