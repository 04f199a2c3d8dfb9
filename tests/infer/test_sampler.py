"""Rows are sampled from exactly the distribution their parameters describe, each as if it were alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepdraft.infer.request import SamplingParams
from deepdraft.infer.sampler import SamplingRow, kept_scores, sample


def row(seed: int = 0, position: int = 5, blocked: tuple[int, ...] = (), **params: Any) -> SamplingRow:
    return SamplingRow(
        params=SamplingParams(**{"max_tokens": 8, **params}),
        seed=seed,
        position=position,
        blocked_token_ids=blocked,
    )


def distribution(logits: list[float], temperature: float, top_k: int | None, top_p: float) -> list[float]:
    """The definition, by sorting."""
    weights = [math.exp((logit - max(logits)) / temperature) for logit in logits]
    order = sorted(range(len(logits)), key=lambda token_id: -weights[token_id])
    kept = order[:top_k]
    total = sum(weights[token_id] for token_id in kept)
    mass, nucleus = 0.0, []
    for token_id in kept:
        nucleus.append(token_id)
        mass += weights[token_id] / total
        if mass >= top_p:
            break
    total = sum(weights[token_id] for token_id in nucleus)
    return [weights[token_id] / total if token_id in nucleus else 0.0 for token_id in range(len(logits))]


def random_logits(num_rows: int, vocab_size: int, seed: int = 0) -> Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 2


def test_greedy_takes_the_lowest_of_equal_ones() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
    assert [token.token_id for token in sample(logits, [row(temperature=0.0), row(temperature=0.0)])] == [1, 0]


# The 0.999 quantiles of chi-square, by degrees of freedom: one less than tokens kept.
CHI_SQUARE_999 = {
    1: 10.83,
    2: 13.82,
    3: 16.27,
    4: 18.47,
    5: 20.52,
    6: 22.46,
    7: 24.32,
    8: 26.12,
    9: 27.88,
    10: 29.59,
    23: 49.73,
}


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, None, 1.0), (3.0, None, 1.0), (0.8, 7, 1.0), (1.5, None, 0.6), (1.5, 10, 0.8), (1.0, 1, 1.0)],
)
def test_draws_follow_the_distribution(temperature: float, top_k: int | None, top_p: float) -> None:
    num_draws = 4000
    logits = random_logits(1, 24, seed=3) / 2
    rows = [row(9, position, temperature=temperature, top_k=top_k, top_p=top_p) for position in range(num_draws)]
    counts = torch.zeros(24)
    for token in sample(logits.expand(num_draws, -1), rows):
        counts[token.token_id] += 1
    expected = torch.tensor(distribution(logits[0].tolist(), temperature, top_k, top_p)) * num_draws
    assert counts[expected == 0].sum() == 0
    kept = expected > 0
    if kept.sum() > 1:
        chi_square = ((counts - expected)[kept] ** 2 / expected[kept]).sum().item()
        assert chi_square < CHI_SQUARE_999[int(kept.sum()) - 1]


@given(
    hundredths=st.lists(st.integers(-3000, 3000), min_size=1, max_size=40, unique=True),
    temperature=st.floats(0.1, 20),
    top_k=st.none() | st.integers(1, 50),
    top_p=st.floats(0, 1),
)
@settings(max_examples=200, deadline=None)
def test_the_kept_tokens_are_those_of_the_definition(
    hundredths: list[int], temperature: float, top_k: int | None, top_p: float
) -> None:
    logits = [number / 100 for number in hundredths]
    params = SamplingParams(max_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p)
    found = kept_scores(torch.tensor([logits]), [params])[0].double().softmax(dim=-1)
    # Rounding may decide about a token at the edge of top_p, and there alone.
    least = torch.tensor(distribution(logits, temperature, top_k, top_p - 1e-5), dtype=torch.float64)
    most = torch.tensor(distribution(logits, temperature, top_k, top_p + 1e-5), dtype=torch.float64)
    assert ((found > 0) >= (least > 0)).all() and ((found > 0) <= (most > 0)).all()
    if torch.equal(least, most):
        assert torch.allclose(found, least, atol=1e-5)


def test_tokens_that_tie_with_the_last_one_kept_are_kept() -> None:
    logits = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]]).expand(2, -1)
    params = [SamplingParams(max_tokens=1, top_k=2), SamplingParams(max_tokens=1, top_p=0.5)]
    kept = kept_scores(logits, params) > -torch.inf
    assert kept.tolist() == [[True, True, True, True, False]] * 2


def test_a_nucleus_wider_than_the_first_look() -> None:
    logits = random_logits(1, 9000) / 100
    found = kept_scores(logits, [SamplingParams(max_tokens=1, top_p=0.9)]) > -torch.inf
    ordered = logits[0].double().softmax(dim=-1).sort(descending=True).values.cumsum(dim=-1)
    assert found.sum().item() == pytest.approx(int((ordered < 0.9).sum()) + 1, abs=2)


def test_top_p_zero_keeps_the_likeliest() -> None:
    kept = kept_scores(torch.tensor([[0.0, 5.0, 4.9]]), [SamplingParams(max_tokens=1, top_p=0.0)]) > -torch.inf
    assert kept.tolist() == [[False, True, False]]


@pytest.mark.parametrize("temperature", [1e-3, 1e-6, 1e-20, 1e-45])
def test_temperature_near_zero_is_greedy(temperature: float) -> None:
    logits = random_logits(50, 300)
    cold = sample(logits, [row(seed, temperature=temperature) for seed in range(50)])
    assert [token.token_id for token in cold] == logits.argmax(dim=-1).tolist()


def test_a_row_does_not_depend_on_its_company() -> None:
    logits = random_logits(12, 500)
    rows = [
        row(index, 100 + index, blocked=(index,) if index % 3 == 0 else (), temperature=index % 4 / 2, num_logprobs=2)
        for index in range(12)
    ]
    together = sample(logits, rows)
    alone = [sample(logits[index : index + 1], [rows[index]])[0] for index in range(12)]
    assert list(together) == alone
    assert list(together) == list(reversed(sample(logits.flip(0), rows[::-1])))


def test_seed_and_position_decide() -> None:
    logits = torch.zeros(1, 1000)
    by_seed = {sample(logits, [row(seed)])[0].token_id for seed in range(30)}
    by_position = {sample(logits, [row(0, position)])[0].token_id for position in range(30)}
    assert len(by_seed) > 25 and len(by_position) > 25
    assert sample(logits, [row(4, 2)]) == sample(logits, [row(4, 2)])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_blocked_tokens_are_never_chosen_but_keep_their_logprob(temperature: float) -> None:
    logits = torch.tensor([[9.0, 8.0, 1.0]])
    before = logits.clone()
    for seed in range(30):
        token = sample(logits, [row(seed, blocked=(0,), temperature=temperature, num_logprobs=1)])[0]
        assert token.token_id != 0
        assert token.logprob is not None
        assert token.logprob.alternatives[0][0] == 0
        assert token.logprob.logprob == pytest.approx(logits.log_softmax(dim=-1)[0, token.token_id].item())
    assert torch.equal(logits, before)


def test_logprobs_are_the_model_s_own() -> None:
    logits = random_logits(1, 400)
    expected = logits.double().log_softmax(dim=-1)[0]
    token = sample(logits, [row(3, temperature=5.0, top_k=200, num_logprobs=6)])[0]
    assert token.logprob is not None and token.logprob.token_id == token.token_id
    assert token.logprob.logprob == pytest.approx(expected[token.token_id].item(), abs=1e-5)
    likeliest = expected.topk(6)
    assert [token_id for token_id, _ in token.logprob.alternatives] == likeliest.indices.tolist()
    assert [logprob for _, logprob in token.logprob.alternatives] == pytest.approx(
        likeliest.values.tolist(), abs=1e-5
    )


def test_logprobs_only_where_asked_for() -> None:
    tokens = sample(random_logits(3, 10), [row(), row(num_logprobs=0), row(num_logprobs=50)])
    assert tokens[0].logprob is None
    assert tokens[1].logprob is not None and tokens[1].logprob.alternatives == ()
    assert tokens[2].logprob is not None and len(tokens[2].logprob.alternatives) == 10
