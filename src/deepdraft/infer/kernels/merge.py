"""Exact merging of attention over disjoint sets of keys.

Softmax over a union of keys is the mean of the partial results, weighted by their shares of the sum of exponentials
("merge states" of FlashInfer, arXiv 2501.01005, 2.2). It serves the parts of a split KV axis, a prefix and its tree
tail, threads, and shards of a context on several devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from deepdraft.infer.kernels.attention import Attended


def merge(partials: Sequence[Attended]) -> Attended:
    """The result over the union of the partials' keys; the order of the partials changes rounding alone.

    Each partial has out [..., D] and lse [...], of the same shapes. A row that saw no key has lse -inf, and its out
    takes no part, whatever it is (a softmax over nothing is NaN). Where no partial saw a key, out is 0 and lse -inf.
    Weights are computed in the dtype of lse; out keeps its own. Raises ValueError when there is nothing to merge.
    """
    if not partials:
        raise ValueError("nothing to merge")
    lses = torch.stack([partial.lse for partial in partials])
    outs = torch.stack([partial.out for partial in partials])
    shares = lses.softmax(dim=0).unsqueeze(-1)  # NaN where no partial saw a key
    weighted = torch.where(shares > 0, shares * outs, 0.0)
    return Attended(weighted.sum(dim=0).to(outs.dtype), lses.logsumexp(dim=0))
