"""What is sampled through a tree is distributed as the target says, whatever the drafter holds likely."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from oracle_drafter import OracleDrafter
from scipy import stats

from deepdraft.infer.settings import SpeculationSettings

PROMPT = list(range(40, 52))
NUM_DRAWS = 1000
TOP_K = 2
OUTPUT_LEN = 4
"""2 ** 4 outputs: the first token of each comes from the prefill, the others from rounds with up to two drafts."""


@pytest.mark.parametrize(
    "speculation",
    [
        SpeculationSettings(tree_budget=2, tree_top_k=1),
        SpeculationSettings(tree_budget=6, tree_top_k=3),
    ],
)
def test_chi_square(tiny_llama: Any, make_request: Any, speculation: SpeculationSettings) -> None:
    """Drafts of the likeliest output: right for some seeds, wrong for the others."""
    expected = distribution(tiny_llama, make_request)
    engine = tiny_llama.engine(
        drafter=OracleDrafter([[*PROMPT, *max(expected, key=expected.__getitem__)]], first_frac=1.0, second_frac=0.0),
        speculation=speculation,
        kv_pool_tokens=8192,
        max_running_requests=256,
        chunk_len=4096,
        is_checked=False,
    )
    params = {"max_tokens": OUTPUT_LEN, "temperature": 6.0, "top_k": TOP_K}
    for seed in range(NUM_DRAWS):
        engine.submit(make_request(str(seed), PROMPT, seed=seed, **params))
    outputs: dict[str, tuple[int, ...]] = {}
    while engine.has_work:
        for output in engine.step():
            outputs[output.request_id] = outputs.get(output.request_id, ()) + output.token_ids
    drawn = list(outputs.values())
    assert set(drawn) <= set(expected)
    likely = [output for output, probability in expected.items() if probability * NUM_DRAWS >= 5]
    observed = [drawn.count(output) for output in likely]
    due = [expected[output] * NUM_DRAWS for output in likely]
    if sum(due) < NUM_DRAWS - 1e-6:  # the unlikely ones together
        observed.append(NUM_DRAWS - sum(observed))
        due.append(NUM_DRAWS - sum(due))
    assert len(likely) >= 8
    assert stats.chisquare(observed, due).pvalue > 1e-3
    totals = engine.steps.totals["verify"]
    assert 0 < totals.num_accepted_tokens < totals.num_rounds


def distribution(tiny_llama: Any, make_request: Any) -> dict[tuple[int, ...], float]:
    """Of all outputs, from the log-probabilities of plain prefills: softmax(log p / T) over the top_k of them."""
    engine = tiny_llama.engine(kv_pool_tokens=4096, is_checked=False)
    names = itertools.count()

    def following(text: list[int]) -> list[tuple[int, float]]:
        name = f"d{next(names)}"
        engine.submit(make_request(name, text, max_tokens=1, num_logprobs=TOP_K))
        (output,) = (output for _ in range(9) if engine.has_work for output in engine.step())
        alternatives = output.logprobs[0].alternatives
        probabilities = (torch.tensor([logprob for _, logprob in alternatives]) / 6.0).softmax(dim=-1)
        return list(zip((token_id for token_id, _ in alternatives), probabilities.tolist(), strict=True))

    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(OUTPUT_LEN):
        found = {
            (*output, token_id): probability * of_token
            for output, probability in found.items()
            for token_id, of_token in following([*PROMPT, *output])
        }
    return found
