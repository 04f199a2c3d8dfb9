"""A request that can't be served is refused by the parameter that makes it so; the two limits are told apart."""

from __future__ import annotations

from typing import Any

import pytest

from deepdraft.infer.errors import ContextTooLong, InvalidRequest, PoolTooSmall
from deepdraft.infer.request_check import check_request
from deepdraft.infer.settings import EngineSettings

SETTINGS = EngineSettings(max_context_len=100, kv_pool_tokens=64, page_size=16)
WIDE = EngineSettings(max_context_len=50, kv_pool_tokens=640, page_size=16)


def test_what_fits_exactly_is_taken(make_request: Any) -> None:
    check_request(make_request("a", range(44), max_tokens=20), SETTINGS, vocab_size=300)
    check_request(make_request("a", range(44), max_tokens=6), WIDE, vocab_size=300)


def test_the_context_limit(make_request: Any) -> None:
    with pytest.raises(ContextTooLong, match=r"44 prompt tokens \+ 7 to generate = 51.* 50") as refused:
        check_request(make_request("a", range(44), max_tokens=7), WIDE, vocab_size=300)
    assert (refused.value.num_prompt_tokens, refused.value.max_tokens, refused.value.max_context_len) == (44, 7, 50)


def test_the_pool_limit(make_request: Any) -> None:
    with pytest.raises(PoolTooSmall, match=r"65 tokens .* 64 .* 100") as refused:
        check_request(make_request("a", range(44), max_tokens=21), SETTINGS, vocab_size=300)
    assert (refused.value.num_tokens, refused.value.kv_pool_tokens, refused.value.max_context_len) == (65, 64, 100)


def test_beyond_both_it_is_the_context_limit(make_request: Any) -> None:
    with pytest.raises(ContextTooLong):
        check_request(make_request("a", range(44), max_tokens=200), SETTINGS, vocab_size=300)


@pytest.mark.parametrize(
    ("parameter", "prompt", "params"),
    [
        ("prompt", [], {}),
        ("prompt", [1, 300], {}),
        ("prompt", [-1, 3], {}),
        ("max_tokens", [1], {"max_tokens": 0}),
        ("min_tokens", [1], {"min_tokens": 9}),
        ("min_tokens", [1], {"min_tokens": -1}),
        ("temperature", [1], {"temperature": -0.1}),
        ("temperature", [1], {"temperature": float("nan")}),
        ("temperature", [1], {"temperature": float("inf")}),
        ("top_p", [1], {"top_p": 1.1}),
        ("top_p", [1], {"top_p": float("nan")}),
        ("top_k", [1], {"top_k": 0}),
        ("presence_penalty", [1], {"presence_penalty": 2.01}),
        ("presence_penalty", [1], {"presence_penalty": float("nan")}),
        ("frequency_penalty", [1], {"frequency_penalty": -2.01}),
        ("repetition_penalty", [1], {"repetition_penalty": 0.0}),
        ("repetition_penalty", [1], {"repetition_penalty": -1.0}),
        ("repetition_penalty", [1], {"repetition_penalty": float("inf")}),
        ("repetition_penalty", [1], {"repetition_penalty": float("nan")}),
        ("logprobs", [1], {"num_logprobs": -1}),
        ("stop", [1], {"stop": ("a", "")}),
        ("stop_token_ids", [1], {"stop_token_ids": (300,)}),
    ],
)
def test_parameters_without_sense(
    make_request: Any, parameter: str, prompt: list[int], params: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_request(make_request("a", prompt, **params), SETTINGS, vocab_size=300)
    assert refused.value.parameter == parameter
