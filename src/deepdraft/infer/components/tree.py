"""A draft tree from a drafter's logits: the likeliest tokens of each depth (`marginals`), then `build_tree`.

Two cases for each size and budget. `whole` has both; its ceiling is the time to read the logits once, its peers
`torch.topk` alone and the plain builder (`plain_tree`) with torch's own top-k. `build` has the tree alone, which no
rate of the machine bounds; its peer is the plain builder. Both builders are held to the same tree before anything is
measured. Candidates a depth: as many as the budget, which is what the best tree may need (DDTree, arXiv 2604.12989,
lemma 1), unless it is said otherwise.

Logits fall with the rank as Zipf's law has it, sharply at depth 1 and less so at each further one. Leaves out
drafting, and masks: `benchmarks/tree` has the published builder beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from deepdraft.errors import DeepdraftError
from deepdraft.infer.components.clock import Machine
from deepdraft.infer.components.plain_tree import plain_marginals, plain_tree
from deepdraft.infer.components.turns import Candidate, Timing, Watch, cases_of
from deepdraft.infer.tree.build import build_tree
from deepdraft.infer.tree.draft_tree import DraftTree
from deepdraft.infer.tree.marginals import Marginals, marginals
from deepdraft.records.component import ComponentCase

SIZES: dict[str, tuple[int, int]] = {"kimi": (15, 163_840), "embedded": (7, 4_096)}
"""Depths and vocabulary: a drafter of block 16 for Kimi K2, the embedded one."""
BONUS = 0
FIRST_EXPONENT, LAST_EXPONENT = 2.5, 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSettings:
    """What to run; every combination is two cases."""

    sizes: tuple[str, ...] = ("kimi", "embedded")
    """As in SIZES."""
    budgets: tuple[int, ...] = (16, 64, 256, 512)
    top_k: int | None = None
    """Candidates a depth; None: the budget, or the whole vocabulary where that is smaller."""
    timing: Timing


Published = Callable[[Tensor, int], tuple[Any, ...]]
"""(logits [L, V], budget) -> token ids of the nodes, depths, parents with node 0, and what else it makes"""


def tree_cases(
    settings: TreeSettings, watch: Watch, *, published: Published | None = None
) -> Iterator[ComponentCase]:
    """Each case as it is measured. `published`: another builder from logits, which makes a mask and maps of children
    as well; it is then the peer of a third case that has both. Raises DeepdraftError where the builders disagree."""
    return cases_of(_candidates(settings, published), settings.timing, watch)


def zipf_logits(draft_len: int, vocab_size: int) -> Tensor:
    """float32 [L, V]; the same at each call."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.linspace(FIRST_EXPONENT, LAST_EXPONENT, draft_len)[:, None]
    falling = -exponents * torch.arange(1, vocab_size + 1).log()
    shuffled = torch.stack([row[torch.randperm(vocab_size, generator=generator)] for row in falling])
    return shuffled + 1e-3 * torch.randn(shuffled.shape, generator=generator)


def _candidates(settings: TreeSettings, published: Published | None) -> Iterator[Candidate]:
    machine = Machine(rate_s=settings.timing.cell_s)
    for size in settings.sizes:
        draft_len, vocab_size = SIZES[size]
        logits = zipf_logits(draft_len, vocab_size)
        for budget in settings.budgets:
            top_k = min(settings.top_k or budget, vocab_size)
            yield from _of_budget(logits, budget, top_k, machine)
            if published is not None:
                yield _with_mask(logits, budget, top_k, published)


def _of_budget(logits: Tensor, budget: int, top_k: int, machine: Machine) -> Iterator[Candidate]:
    draft_len, vocab_size = logits.shape
    likeliest, plain = marginals(logits[None], top_k)[0], plain_marginals(logits, top_k)
    tree = _held_to_plain(likeliest, plain, budget)
    name = f"{draft_len} x {vocab_size}, budget {budget}"
    facts = _facts(logits, budget, top_k, tree)
    yield Candidate(
        name=f"{name}, whole",
        facts=facts,
        run=lambda: build_tree(BONUS, marginals(logits[None], top_k)[0], budget=budget),
        peers={
            "topk alone": partial(torch.topk, logits, top_k),
            "plain": lambda: plain_tree(BONUS, *plain_marginals(logits, top_k), budget),
        },
        work={"read": float(logits.nbytes)},
        rates={"read": partial(machine.read_bytes_s, logits.nbytes)},
    )
    yield Candidate(
        name=f"{name}, build",
        facts=facts,
        run=partial(build_tree, BONUS, likeliest, budget=budget),
        peers={"plain": partial(plain_tree, BONUS, *plain, budget)},
        work={},
        rates={},
    )


def _with_mask(logits: Tensor, budget: int, top_k: int, published: Published) -> Candidate:
    def run() -> DraftTree:
        tree = build_tree(BONUS, marginals(logits[None], top_k)[0], budget=budget)
        tree.child(0, BONUS)  # makes the map of children
        _ = tree.ancestor_mask
        return tree

    tree, (token_ids, _, parents, *_) = run(), published(logits, budget)
    _hold(tree, (BONUS, *token_ids.tolist()), tuple(parents), budget)
    return Candidate(
        name=f"{logits.shape[0]} x {logits.shape[1]}, budget {budget}, with mask",
        facts=_facts(logits, budget, top_k, tree),
        run=run,
        peers={"published": partial(published, logits, budget)},
        work={},
        rates={},
    )


def _facts(logits: Tensor, budget: int, top_k: int, tree: DraftTree) -> dict[str, Any]:
    return {
        "draft_len": logits.shape[0],
        "vocab_size": logits.shape[1],
        "tree_budget": budget,
        "top_k": top_k,
        "num_nodes": tree.num_nodes,
        "tree_depth": max(tree.depths),
    }


def _held_to_plain(likeliest: Marginals, plain: tuple[list[list[float]], list[list[int]]], budget: int) -> DraftTree:
    tree = build_tree(BONUS, likeliest, budget=budget)
    _hold(tree, *plain_tree(BONUS, *plain, budget), budget)
    return tree


def _hold(tree: DraftTree, token_ids: tuple[int, ...], parents: tuple[int, ...], budget: int) -> None:
    """To the same paths, in whatever order: rounding may swap equal ones, and the last few for others as good."""
    num_different = len(_paths(tree.token_ids, tree.parents) - _paths(token_ids, parents))
    if tree.num_nodes != len(token_ids) - 1 or num_different > max(1, budget // 50):
        raise DeepdraftError(f"two builders' trees of {tree.num_nodes} nodes differ in {num_different} paths")


def _paths(tokens: tuple[int, ...], parents: tuple[int, ...]) -> set[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = [()]
    for token_id, parent in zip(tokens[1:], parents[1:], strict=True):
        paths.append((*paths[parent], token_id))
    return set(paths)
