"""Whatever a tree proposes, the tokens are those of plain decoding, one for one: drawn with the engine's own sampler,
whose random number belongs to seed and position, and with logits that depend on the path by way of penalties.

The toy target's logits depend on the last two tokens; the drafter knows them badly.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from tree_case import node_path

from deepdraft.infer.request import SamplingParams
from deepdraft.infer.sampler import SamplingRow, sample
from deepdraft.infer.tree.build import build_tree
from deepdraft.infer.tree.marginals import marginals
from deepdraft.infer.tree.walk import walk

VOCAB_SIZE = 12
PROMPT = [3, 1, 4]
NUM_TOKENS = 60
GENERATOR = torch.Generator().manual_seed(5)
TARGET = torch.randn(VOCAB_SIZE, VOCAB_SIZE, VOCAB_SIZE, generator=GENERATOR) * 3
DRAFTER = torch.randn(VOCAB_SIZE, 4, VOCAB_SIZE, generator=GENERATOR) * 2


def target_row(token_ids: list[int], params: SamplingParams, seed: int) -> int:
    """The target's token after these."""
    row = SamplingRow(
        params=params,
        seed=seed,
        position=len(token_ids),
        prompt_token_ids=frozenset(PROMPT),
        output_token_ids=token_ids[len(PROMPT) :],
    )
    return sample(TARGET[token_ids[-2], token_ids[-1]][None], [row])[0].token_id


def plain(params: SamplingParams, seed: int) -> list[int]:
    token_ids = list(PROMPT)
    while len(token_ids) < len(PROMPT) + NUM_TOKENS:
        token_ids.append(target_row(token_ids, params, seed))
    return token_ids


def drafted(
    params: SamplingParams, seed: int, top_k: int, budget: int, is_spine_first: bool
) -> tuple[list[int], int]:
    """Tokens and drafts accepted."""
    token_ids = list(PROMPT)
    token_ids.append(target_row(token_ids, params, seed))
    num_accepted = 0
    while len(token_ids) < len(PROMPT) + NUM_TOKENS:
        (drafts,) = marginals(_draft_logits(token_ids)[None], top_k)
        tree = build_tree(token_ids[-1], drafts, budget=budget, is_spine_first=is_spine_first)

        def choose(node: int, before: tuple[int, ...] = tuple(token_ids), tree: Any = tree) -> int:
            return target_row([*before, *node_path(tree, node)], params, seed)

        taken = walk(tree, choose)
        num_accepted += taken.accepted_len
        token_ids += [*(tree.token_ids[node] for node in taken.path[1:]), taken.next_token_id]
    return token_ids[: len(PROMPT) + NUM_TOKENS], num_accepted


def _draft_logits(token_ids: list[int]) -> Tensor:
    """[4, V]: the first depth right in part, the others noise."""
    logits = DRAFTER[token_ids[-1]].clone()
    logits[0] += TARGET[token_ids[-2], token_ids[-1]]
    return logits


@pytest.mark.parametrize(
    ("top_k", "budget", "is_spine_first"), [(1, 4, False), (3, 8, False), (3, 8, True), (12, 70, False)]
)
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0),
        SamplingParams(max_tokens=NUM_TOKENS, temperature=1.0),
        SamplingParams(max_tokens=NUM_TOKENS, temperature=0.7, top_k=6, top_p=0.9),
        SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, frequency_penalty=0.4, presence_penalty=1.0),
        SamplingParams(max_tokens=NUM_TOKENS, temperature=1.0, frequency_penalty=-0.2, repetition_penalty=1.4),
    ],
    ids=["greedy", "sampled", "filtered", "greedy with penalties", "sampled with penalties"],
)
def test_a_tree_changes_no_token(params: SamplingParams, top_k: int, budget: int, is_spine_first: bool) -> None:
    token_ids, num_accepted = drafted(params, 17, top_k, budget, is_spine_first)
    assert token_ids == plain(params, 17)
    assert num_accepted > 0


def test_near_zero_temperature_is_greedy_with_trees_too() -> None:
    greedy, cold = (SamplingParams(max_tokens=NUM_TOKENS, temperature=temperature) for temperature in (0.0, 1e-6))
    assert drafted(cold, 17, 3, 8, False) == drafted(greedy, 17, 3, 8, False)
