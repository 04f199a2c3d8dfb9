"""What drafts are worth at a rate: tokens they are expected to give, less what their seconds would give otherwise.

Pure arithmetic; which requests draft is `policy`'s decision.

Shape letters: M trees, B nodes of the largest tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from deepdraft.infer.control.acceptance import Floats, Outlook
from deepdraft.infer.control.costs import RowCosts


@dataclass(frozen=True, slots=True)
class Worth:
    """Of one request's drafts in a step, the drafter's pass left out; means over its outlook."""

    gain: float
    """Tokens beyond the one of a plain step."""
    rows_s: float
    """Seconds of the rows that they take."""
    num_nodes: float


def worth(outlook: Outlook, rows_s: Floats, rate_tok_s: float, *, min_nodes: int = 0) -> Worth:
    """With as many nodes of each tree as are worth it, and at least `min_nodes`; rows_s [B + 1] are the seconds of
    0, 1, ... more rows."""
    gains = outlook.gains[:, min_nodes:]
    nodes = (gains - rate_tok_s * rows_s[min_nodes:]).argmax(axis=1)
    weights = outlook.weights
    gain = float(weights @ gains[np.arange(len(gains)), nodes])
    nodes += min_nodes
    return Worth(gain, float(weights @ rows_s[nodes]), float(weights @ nodes))


def rows_s(costs: RowCosts, num_nodes: int, num_others: float = 0.0) -> Floats:
    """[num_nodes + 1] Seconds of 0, 1, ... rows more than a plain step's. Where other requests of the step have
    `num_others` more rows, each takes its part of what all of them take together."""
    if not num_others:
        return costs.up_to(num_nodes) - costs.plain_s
    together = num_others + num_nodes / 2
    slope = (costs.of(costs.rows[0] + together) - costs.plain_s) / together
    return np.arange(num_nodes + 1, dtype=np.float64) * slope


def cut(gains: Sequence[Sequence[float]], costs: RowCosts, rate_tok_s: float) -> tuple[int, ...]:
    """How many first nodes of each tree to verify in one pass, so that most tokens are won above the rate; `gains`
    are the expected tokens of each tree's nodes in their order.

    Nodes of all trees are taken likeliest first, none before those ahead of it in its tree.
    """
    if len(gains) == 1:
        (own,) = gains
        return (_num_worth(own, costs, rate_tok_s),)
    # A node stands no earlier than the least likely one ahead of it; the sort is stable.
    nodes = [
        (least, gain, tree)
        for tree, own in enumerate(gains)
        for least, gain in zip(accumulate(own, min), own, strict=True)
    ]
    nodes.sort(key=lambda node: -node[0])
    taken = [0] * len(gains)
    for _, _, tree in nodes[: _num_worth([gain for _, gain, _ in nodes], costs, rate_tok_s)]:
        taken[tree] += 1
    return tuple(taken)


def _num_worth(gains: Sequence[float], costs: RowCosts, rate_tok_s: float) -> int:
    """How many first nodes, in this order, win most above the rate."""
    seconds = costs.first(len(gains))
    plain_s, won, best, num_taken = seconds[0], 0.0, 0.0, 0
    for place, gain in enumerate(gains, start=1):
        won += gain
        value = won - rate_tok_s * (seconds[place] - plain_s)
        if value > best:
            best, num_taken = value, place
    return num_taken
