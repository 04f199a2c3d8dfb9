"""Rounds that were to pay and did not make the next ones harder to begin, for whom they concern."""

from __future__ import annotations

from deepdraft.infer.control.optimism import NUM_FIRST_ROUNDS, Optimism


def seen(optimism: Optimism, times: int, tokens_frac: float, seconds_frac: float, *, request_id: str = "a") -> None:
    for _ in range(times):
        optimism.observe(request_id, 1000, tokens_frac=tokens_frac, seconds_frac=seconds_frac)


def test_it_is_what_expectations_fell_short_by() -> None:
    optimism = Optimism()
    assert optimism.margin_frac("a", 1000) == 0
    seen(optimism, 300, 0.9, 1.1)
    before = optimism.margin_frac("a", 1000)
    assert 0.1 < before < 1.1 / 0.9 - 1
    for _ in range(300):
        optimism.forgive("a", 1000)
    assert 0 < optimism.margin_frac("a", 1000) < before
    seen(optimism, 300, 1.2, 1.0)
    assert optimism.margin_frac("a", 1000) == 0, "what turned out better is no reason to draft more"


def test_others_of_the_context_lean_on_it() -> None:
    optimism = Optimism()
    seen(optimism, 200, 0.8, 1.0)
    assert 0.05 < optimism.margin_frac("b", 1000) <= 0.25
    assert optimism.margin_frac("b", 100_000) == 0
    before = optimism.margin_frac("b", 1000)
    optimism.forget("a")
    assert optimism.num_requests == 0 and optimism.margin_frac("a", 1000) == before


def test_what_was_not_known_of_a_request_concerns_no_other() -> None:
    optimism = Optimism()
    seen(optimism, NUM_FIRST_ROUNDS, 0.3, 1.0)
    assert optimism.margin_frac("a", 1000) > 0 == optimism.margin_frac("b", 1000)
