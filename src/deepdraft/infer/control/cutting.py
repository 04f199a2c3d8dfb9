"""How much of each tree is verified, once trees are there: nodes compete for the rows of one pass.

Pure but for what is looked up in the books.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from deepdraft.infer.control.acceptance import Drafts
from deepdraft.infer.control.books import NUM_LEARNING_ROUNDS, Books
from deepdraft.infer.control.costs import RowCosts
from deepdraft.infer.control.plan import EXPLORING, WEIGHED, Plan, after_drafting
from deepdraft.infer.control.worth import cut

MARGIN_FRAC = 0.04
"""What a request commits by drafts that nobody expected to pay is expected to be more by this than at break-even."""
_LEARNING_PARTS = 4


def cut_trees(plan: Plan, drafts: Sequence[Drafts | None], books: Books, *, min_nodes: int) -> Plan:
    """As `Policy.cut`."""
    sizes = tuple(0 if each is None else len(each.path_probs) for each in drafts)
    if plan.rate_tok_s is None or plan.costs is None or not any(sizes):
        decisions = tuple(map(after_drafting, plan.decisions, plan.drafting, drafts, sizes))
        return replace(plan, num_nodes=sizes, decisions=decisions)
    gains: dict[int, list[float]] = {}
    for place, each in enumerate(drafts):
        if each is not None and sizes[place]:
            request = plan.requests[place]
            gains[place] = books.acceptance.gains(request.request_id, request.context_len, each)
    wanted = _wanted(plan, plan.costs, plan.rate_tok_s, gains, books)
    taken = tuple(min(size, max(min_nodes, want)) if want else 0 for want, size in zip(wanted, sizes, strict=True))
    decisions = tuple(map(after_drafting, plan.decisions, plan.drafting, drafts, taken))
    if not any(taken):
        return replace(plan, num_nodes=taken, decisions=decisions)
    num_requests, plain_s = len(taken), plan.costs.plain_s
    verify_s = plan.costs.of(num_requests + sum(taken))
    row_s = (verify_s - plain_s) / sum(taken)
    draft_s = plan.draft_s / max(1, sum(plan.drafting))
    decisions = tuple(
        replace(
            decision,
            break_even_len=1 + num_requests / plain_s * (draft_s + number * row_s),
            expected_len=1 + sum(gains[place][:number]),
        )
        if number
        else decision
        for place, (decision, number) in enumerate(zip(decisions, taken, strict=True))
    )
    return replace(plan, num_nodes=taken, decisions=decisions, verify_s=verify_s)


def _wanted(
    plan: Plan, costs: RowCosts, rate_tok_s: float, gains: Mapping[int, Sequence[float]], books: Books
) -> list[int]:
    """Nodes of each tree; `gains` of those that have any."""
    wanted = [0] * len(plan.requests)
    weighed = [place for place in gains if plan.decisions[place].reason in WEIGHED]
    held = []
    for place in weighed:
        request = plan.requests[place]
        overrated_frac = books.optimism.margin_frac(request.request_id, request.context_len)
        held.append([gain / (1 + overrated_frac) for gain in gains[place]])
    kept = cut(held, costs, rate_tok_s)
    rows_s = costs.of(len(wanted) + sum(kept)) - costs.plain_s
    for place, its_own, num_nodes in zip(weighed, held, kept, strict=True):
        is_unplanned = plan.decisions[place].reason == "below_break_even"
        least = 1 + rate_tok_s * rows_s * num_nodes / max(1, sum(kept))
        if not is_unplanned or 1 + sum(its_own[:num_nodes]) > (1 + MARGIN_FRAC) * least:
            wanted[place] = num_nodes
    for place, own in gains.items():
        if plan.decisions[place].reason in EXPLORING:
            wanted[place] = _num_explored(plan, costs, rate_tok_s, own, books)
    return wanted


def _num_explored(plan: Plan, costs: RowCosts, rate_tok_s: float, gains: Sequence[float], books: Books) -> int:
    """Nodes of a tree that was drafted to find out."""
    if plan.is_whole:
        return len(gains)
    if books.num_learning_rounds < NUM_LEARNING_ROUNDS:
        return -(-len(gains) // _LEARNING_PARTS)
    (num_nodes,) = cut([gains], costs, rate_tok_s)
    return max(1, num_nodes)
