"""From a body to SamplingParams."""

from __future__ import annotations

from typing import Any

import pytest

from deepdraft.infer.request import SamplingParams
from deepdraft.infer.server.protocol import CompletionBody
from deepdraft.infer.server.refusal import Refused
from deepdraft.infer.server.sampling import num_choices, of_choice, sampling_params, with_default_max_tokens


def params(**fields: Any) -> SamplingParams:
    body = CompletionBody(prompt="a", **fields)
    return sampling_params(
        body, asked_max_tokens=body.max_tokens, max_tokens_name="max_tokens", num_logprobs=body.logprobs
    )


def test_what_is_not_said_is_openais_default() -> None:
    assert params(max_tokens=7) == SamplingParams(max_tokens=7, temperature=1.0, top_p=1.0)


def test_what_is_said_is_passed_on() -> None:
    found = params(
        max_tokens=9,
        min_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        presence_penalty=-2,
        frequency_penalty=2,
        repetition_penalty=1.2,
        seed=3,
        stop=["a", "b", "a"],
        stop_token_ids=[5, 5],
        ignore_eos=True,
        logprobs=0,
    )
    assert found == SamplingParams(
        max_tokens=9,
        min_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        presence_penalty=-2.0,
        frequency_penalty=2.0,
        repetition_penalty=1.2,
        seed=3,
        stop=("a", "b"),
        stop_token_ids=(5,),
        ignore_eos=True,
        num_logprobs=0,
    )


@pytest.mark.parametrize("top_k", [0, -1, None])
def test_top_k_that_is_off(top_k: int | None) -> None:
    assert params(top_k=top_k).top_k is None


@pytest.mark.parametrize(
    ("name", "value", "range_stated"),
    [
        ("presence_penalty", 2.01, "between -2 and 2"),
        ("presence_penalty", -2.01, "between -2 and 2"),
        ("frequency_penalty", 1e300, "between -2 and 2"),
        ("repetition_penalty", 0.0, "above 0"),
        ("repetition_penalty", -1e-9, "above 0"),
    ],
)
def test_a_penalty_out_of_range_is_refused_by_name(name: str, value: float, range_stated: str) -> None:
    with pytest.raises(Refused, match=f"{name} must be {range_stated}") as refused:
        params(**{name: value})
    assert refused.value.param == name


@pytest.mark.parametrize("seed", [-1, -(2**63), 0, 2**63 - 1])
def test_any_64_bit_seed_is_a_seed(seed: int) -> None:
    found = params(seed=seed)
    assert found.seed is not None and 0 <= found.seed < 2**63
    assert of_choice(found, 0).seed == found.seed
    assert len({of_choice(found, choice).seed for choice in range(5)}) == 5


def test_without_a_seed_every_choice_draws_its_own() -> None:
    assert of_choice(params(), 3).seed is None


def test_the_output_limit_is_filled_in_where_there_is_none() -> None:
    assert with_default_max_tokens(params(max_tokens=5), 99).max_tokens == 5
    assert with_default_max_tokens(params(), 99).max_tokens == 99
    assert with_default_max_tokens(params(), -3).max_tokens == 1  # the engine says that it is too long
    assert with_default_max_tokens(params(min_tokens=20), 16).max_tokens == 20


def test_best_of_is_n_or_nothing() -> None:
    assert num_choices(CompletionBody(prompt="a", n=2, best_of=2)) == 2
    with pytest.raises(Refused, match="best_of"):
        num_choices(CompletionBody(prompt="a", best_of=2))
