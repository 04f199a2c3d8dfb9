"""Penalties through the whole engine: every token is the one that a plain computation from the model's own
log-probabilities chooses, drafted or not."""

from __future__ import annotations

from typing import Any

import pytest
from oracle_drafter import OracleDrafter

from deepdraft.infer.settings import SpeculationSettings

PROMPT = [*range(40, 52), 40, 41, 42]
TREE = SpeculationSettings(tree_budget=12, tree_top_k=4)
VOCAB_SIZE = 264


def repeats(token_ids: list[int]) -> int:
    return len(token_ids) - len(set(token_ids))


@pytest.mark.parametrize("is_drafted", [False, True])
@pytest.mark.parametrize(("presence", "frequency"), [(2.0, 0.0), (0.0, 2.0), (1.0, 0.7), (-2.0, -2.0)])
def test_every_token_is_the_likeliest_after_its_penalties(
    tiny_llama: Any, collect: Any, make_request: Any, presence: float, frequency: float, is_drafted: bool
) -> None:
    request = make_request(
        "a",
        PROMPT,
        max_tokens=40,
        num_logprobs=VOCAB_SIZE,
        presence_penalty=presence,
        frequency_penalty=frequency,
    )
    answer = collect(tiny_llama.engine(), [request])["a"]
    if is_drafted:
        oracle = OracleDrafter([[*PROMPT, *answer.token_ids]])
        answer = collect(tiny_llama.engine(drafter=oracle, speculation=TREE), [request])["a"]
        assert len(answer.outputs) < 25
    for place, logprob in enumerate(answer.logprobs):
        before = answer.token_ids[:place]
        scores = {
            token_id: own - frequency * before.count(token_id) - presence * (token_id in before)
            for token_id, own in logprob.alternatives
        }
        assert len(scores) == VOCAB_SIZE
        assert scores[answer.token_ids[place]] == pytest.approx(max(scores.values()), abs=1e-4)


def test_the_highest_repetition_penalty_never_repeats(tiny: Any, collect: Any, make_request: Any) -> None:
    plain = make_request("plain", PROMPT, max_tokens=40, temperature=1.0, seed=2)
    penalised = make_request("new", PROMPT, max_tokens=40, temperature=1.0, seed=2, repetition_penalty=1e6, top_k=20)
    answers = collect(tiny.engine(), [plain, penalised])  # in one batch
    assert repeats(answers["plain"].token_ids) > 0
    assert repeats(answers["new"].token_ids) == 0
    assert not set(answers["new"].token_ids) & set(PROMPT)


def test_frequency_makes_repetition_rarer(tiny: Any, collect: Any, make_request: Any) -> None:
    requests = [
        make_request(str(penalty), PROMPT, max_tokens=100, frequency_penalty=penalty) for penalty in (-2.0, 0.0, 2.0)
    ]
    more, plain, less = (repeats(answer.token_ids) for answer in collect(tiny.engine(), requests).values())
    assert more > plain > less
