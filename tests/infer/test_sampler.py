"""Rows are sampled from exactly the distribution their parameters describe, each as if it were alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
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


def penalised(
    logits: list[float], prompt: list[int], output: list[int], presence: float, frequency: float, repetition: float
) -> list[float]:
    """The definition, token by token."""
    found = list(logits)
    for token_id in range(len(logits)):
        if token_id in prompt or token_id in output:
            found[token_id] = found[token_id] / repetition if found[token_id] > 0 else found[token_id] * repetition
        found[token_id] -= output.count(token_id) * frequency
        if token_id in output:
            found[token_id] -= presence
    return found


TOKEN_LISTS = st.lists(st.integers(0, 11), max_size=20)


@given(
    seed=st.integers(0, 1000),
    prompt=TOKEN_LISTS,
    output=TOKEN_LISTS,
    presence=st.floats(-2, 2),
    frequency=st.floats(-2, 2),
    repetition=st.sampled_from([1.0, 1.3, 0.7, 5.0]),
)
@settings(max_examples=100, deadline=None)
def test_penalties_are_those_of_the_definition(
    seed: int, prompt: list[int], output: list[int], presence: float, frequency: float, repetition: float
) -> None:
    """A row with penalties chooses as one without them does from logits that had them already."""
    logits = random_logits(1, 12, seed)
    expected = torch.tensor([penalised(logits[0].tolist(), prompt, output, presence, frequency, repetition)])
    penalties = {"presence_penalty": presence, "frequency_penalty": frequency, "repetition_penalty": repetition}
    plain = [row(seed, position, temperature=position % 3, top_p=0.9) for position in range(12)]
    rows = [
        replace(
            one,
            params=replace(one.params, **penalties),
            prompt_token_ids=frozenset(prompt),
            output_token_ids=output,
        )
        for one in plain
    ]
    found = sample(logits.expand(12, -1), rows)
    assert [token.token_id for token in found] == [token.token_id for token in sample(expected.expand(12, -1), plain)]


def penalty_row(
    output: Sequence[int] = (), prompt: Sequence[int] = (), position: int = 5, **params: Any
) -> SamplingRow:
    return replace(row(position=position, **params), prompt_token_ids=prompt, output_token_ids=output)


def greedy(logits: list[float], **params: Any) -> int:
    return sample(torch.tensor([logits]), [penalty_row(temperature=0.0, **params)])[0].token_id


def test_presence_counts_once_and_frequency_every_time() -> None:
    logits = [3.0, 2.0, 0.0]
    assert greedy(logits, output=[0] * 9, presence_penalty=0.9) == 0
    assert greedy(logits, output=[0], presence_penalty=1.1) == 1
    assert greedy(logits, output=[0] * 9, frequency_penalty=0.11) == 0
    assert greedy(logits, output=[0] * 10, frequency_penalty=0.11) == 1


def test_the_prompt_counts_for_repetition_alone() -> None:
    logits = [3.0, 2.0, 0.0]
    assert greedy(logits, prompt=[0] * 9, presence_penalty=2.0, frequency_penalty=2.0) == 0
    assert greedy(logits, prompt=[0], repetition_penalty=2.0) == 1
    assert greedy(logits, output=[0], repetition_penalty=2.0) == 1


def test_repetition_lowers_logits_of_either_sign() -> None:
    assert greedy([-1.0, -1.5], prompt=[0], repetition_penalty=2.0) == 1
    assert greedy([1.5, 1.0], prompt=[0], repetition_penalty=2.0) == 1
    assert greedy([1.0, 1.5], prompt=[0], repetition_penalty=0.5) == 0


def test_repetition_comes_before_the_others() -> None:
    # 4 / 2 - 1.5 = 0.5; the other way round it would be (4 - 1.5) / 2 = 1.25.
    assert greedy([4.0, 1.0], output=[0], presence_penalty=1.5, repetition_penalty=2.0) == 1


@pytest.mark.parametrize("temperature", [0.0, 0.03])
def test_the_highest_frequency_penalty_never_repeats_while_it_may_choose(temperature: float) -> None:
    """Logits that differ by less than the penalty: each token comes once before any comes again."""
    logits = torch.linspace(1, 0, 30)[None]
    output: list[int] = []
    for position in range(60):
        chosen = penalty_row(output, position=position, temperature=temperature, frequency_penalty=2.0)
        output.append(sample(logits, [chosen])[0].token_id)
    assert sorted(output[:30]) == sorted(output[30:]) == list(range(30))
    plain = [row(position=position, temperature=temperature) for position in range(30)]
    assert len({token.token_id for token in sample(logits.expand(30, -1), plain)}) < 15  # without it they do


def test_a_penalty_below_zero_asks_for_repetition() -> None:
    assert greedy([1.0, 0.5], output=[1], presence_penalty=-1.0) == 1


def test_each_node_of_a_tree_has_the_penalties_of_its_own_path() -> None:
    logits = torch.tensor([[3.0, 2.9, 2.8, 0.0]]).expand(4, -1)
    committed = [3, 0]
    paths = [[], [1], [1, 2], [2]]
    rows = [penalty_row([*committed, *path], temperature=0.0, frequency_penalty=1.0) for path in paths]
    assert [token.token_id for token in sample(logits, rows)] == [1, 2, 0, 1]


def test_logprobs_are_the_model_s_own_whatever_the_penalties() -> None:
    logits = random_logits(1, 50)
    before = logits.clone()
    chosen = penalty_row(range(40), range(50), presence_penalty=2.0, repetition_penalty=3.0, num_logprobs=2)
    token = sample(logits, [chosen])[0]
    assert token.logprob is not None
    assert token.logprob.logprob == pytest.approx(logits.log_softmax(dim=-1)[0, token.token_id].item())
    assert token.logprob.alternatives[0][0] == int(logits.argmax())
    assert torch.equal(logits, before)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("repetition", [1e-300, 1e300])
def test_penalties_beyond_what_a_float_holds(temperature: float, repetition: float) -> None:
    """Every token was there before; the one that is blocked is not chosen even so, and logits stay numbers."""
    logits = torch.tensor([[3.0, 0.0, -2.0]])
    chosen = penalty_row(
        range(3), temperature=temperature, repetition_penalty=repetition, presence_penalty=2.0, num_logprobs=0
    )
    for position in range(20):
        token = sample(logits, [replace(chosen, position=position, blocked_token_ids=(0,))])[0]
        assert token.token_id in (1, 2)
        assert token.logprob is not None and math.isfinite(token.logprob.logprob)


class Unread(Sequence[int]):
    """Tokens that nobody may look at."""

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("tokens were read")

    def __len__(self) -> int:
        raise AssertionError("tokens were counted")


def test_tokens_ahead_are_not_read_without_need() -> None:
    logits = random_logits(1, 20)
    expected = sample(logits, [row()])
    assert sample(logits, [penalty_row(Unread(), Unread())]) == expected
    sample(logits, [penalty_row([1, 2], Unread(), frequency_penalty=1.0)])
    company = [penalty_row(Unread(), Unread()), penalty_row([3], Unread(), presence_penalty=1.0)]
    assert sample(logits.expand(2, -1), company)[0] == expected[0]
