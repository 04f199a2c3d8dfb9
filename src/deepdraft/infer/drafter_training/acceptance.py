"""What an engine would accept of a drafter's drafts, read off the target's known output.

Verification never changes what the target writes, so every round is determined beforehand: at each place of the
output the drafter's block is computed once, its matched depth follows from the tokens that were written there, and
the rounds of a request are the walk that goes on behind each round's accepted tokens. Leaves out speed.

Shape letters: P places of one output, L drafted tokens of a block, K candidates of a depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.infer.drafter_training.blocks import blocks_at
from deepdraft.infer.drafter_training.draft_module import DraftModule
from deepdraft.infer.drafter_training.sample import Sample
from deepdraft.infer.drafter_training.training import draft_hidden
from deepdraft.infer.noise import gumbel_noise
from deepdraft.infer.tree.build import build_tree
from deepdraft.infer.tree.marginals import Marginals, marginals

PLACES_AT_ONCE = 64
CHAIN = 0
"""Stands for the chain among the budgets of trees."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The rounds of some outputs under one form of draft."""

    accepted_lens: tuple[int, ...]
    """Of each round, the bonus token not counted"""
    draft_len: int

    @property
    def acceptance_len(self) -> float:
        """Tokens a round commits, the bonus token included: mean of accepted + 1."""
        return 1 + sum(self.accepted_lens) / len(self.accepted_lens)

    @property
    def accepted_at_depth(self) -> tuple[float, ...]:
        """Share of rounds that accept at least 1, 2, ... draft_len drafts."""
        num_rounds = len(self.accepted_lens)
        return tuple(sum(n >= k for n in self.accepted_lens) / num_rounds for k in range(1, self.draft_len + 1))


def acceptances(
    module: DraftModule,
    samples: Sequence[Sample],
    *,
    embedding: Tensor,
    output: Tensor,
    budgets: Sequence[int] = (CHAIN, 32),
    top_k: int = 8,
    temperature: float = 0.0,
    seeds: Sequence[int] = (),
) -> dict[int, Acceptance]:
    """The rounds that `budgets` (CHAIN or nodes of a tree) would have had over the outputs of `samples`.

    Above temperature 0 `seeds` are those that the outputs were sampled with: drafts then have the sampler's own noise
    of each seed and position, as the engine's have. Rounds whose block reaches behind the end of an output are left
    out: what they accept is cut off by it.
    """
    rounds: dict[int, list[int]] = {budget: [] for budget in budgets}
    draft_len = module.shape.draft_len
    for sample, seed in zip(samples, seeds or [0] * len(samples), strict=True):
        first, stop = sample.num_prompt_tokens, len(sample.token_ids) - draft_len
        if stop <= first:
            continue
        depths: dict[int, list[int]] = {budget: [] for budget in budgets}
        for places, logits in _logits(module, sample, first, stop, embedding, output):
            if temperature > 0:
                logits = _noisy(logits, temperature, seed, sample.start + places)
            labels = _labels(sample, places, draft_len)
            for candidates, of_place in zip(marginals(logits, top_k), labels, strict=True):
                for budget, depth in _matched(candidates, of_place, budgets).items():
                    depths[budget].append(depth)
        for budget, of_place in depths.items():
            place = first
            while place < stop:
                rounds[budget].append(of_place[place - first])
                place += of_place[place - first] + 1
    return {budget: Acceptance(tuple(lens), draft_len) for budget, lens in rounds.items()}


@torch.no_grad()
def _logits(
    module: DraftModule, sample: Sample, first: int, stop: int, embedding: Tensor, output: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Places of [first, stop), int64 [P], and the logits of the tokens drafted there, [P, L, V]; some at a time."""
    for start in range(first, stop, PLACES_AT_ONCE):
        places = torch.arange(start, min(start + PLACES_AT_ONCE, stop))
        blocks = blocks_at([sample], places[None], module.shape)
        yield places, F.linear(draft_hidden(module, blocks, embedding)[0, :, 1:], output)


def _noisy(logits: Tensor, temperature: float, seed: int, positions: Tensor) -> Tensor:
    """The scores that the sampler would give: over the temperature, plus the noise of the seed at each token's own
    position. logits [P, L, V], positions of the bonus tokens int64 [P], one after another."""
    first, draft_len = int(positions[0]) + 1, logits.shape[1]
    noise = gumbel_noise([(seed, first + i) for i in range(len(positions) + draft_len - 1)], logits.shape[-1])
    return logits / temperature + noise.unfold(0, draft_len, 1).transpose(1, 2)


def _labels(sample: Sample, places: Tensor, draft_len: int) -> list[list[int]]:
    """The tokens behind each place, [P][L]."""
    rows: list[list[int]] = sample.token_ids[places[:, None] + 1 + torch.arange(draft_len)].tolist()
    return rows


def _matched(candidates: Marginals, labels: Sequence[int], budgets: Sequence[int]) -> dict[int, int]:
    """How many of `labels` the chain, or the tree of each budget, holds as one path from its root."""
    matched = {}
    trees = [budget for budget in budgets if budget != CHAIN]
    if CHAIN in budgets:
        chain = candidates.token_ids[:, 0].tolist()
        matched[CHAIN] = next((k for k, (a, b) in enumerate(zip(chain, labels, strict=True)) if a != b), len(chain))
    if not trees:
        return matched
    tree = build_tree(0, candidates, budget=max(trees))
    path, node = [], 0
    for label in labels:
        child = tree.child(node, label)
        if child is None:
            break
        path.append(child)
        node = child
    # The first b nodes of a tree are the tree of budget b.
    for budget in trees:
        matched[budget] = sum(node <= budget for node in path)
    return matched
