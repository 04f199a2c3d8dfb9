"""Sweeps against a real `transformers serve`: counts are exact, and silence on cached tokens is not called cold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from deepdraft.metrics import ttft_s

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

SIZES = ("--context-len", "512,2k,4k", "--decode-len", "32", "--repeats", "3")
LENS = [512, 2000, 4000]
HIT_FACTOR = 3
"""A hit at 4,000 tokens is ten times faster and more. Other work on the machine only adds to a TTFT, so the least of
several is compared with the least of several."""


def assert_sound(sweep: Any) -> None:
    """Every point was measured, with exact counts."""
    assert sweep.exit_code == 0
    assert [point["context_len"] for point in sweep.points] == LENS
    for request in sweep.requests:
        assert request.failure is None
        assert request.trace.usage.prompt_tokens == request.prompt.asked_len == request.prompt.expected_len
        assert request.trace.usage.completion_tokens == request.max_tokens == 32
        assert request.trace.usage.cached_tokens is None
        assert not request.trace.saw_done  # the stream ends with its finish reason alone
        assert request.trace.finish_reason == "length"
    for name in ("prompt_len", "truncation", "early_stop"):
        assert sweep.states(name) == {"verified"}, sweep.guard(name)


def ttfts_s(sweep: Any, asked_len: int) -> list[float]:
    """TTFT of each repeat of a point, in the order they were sent."""
    found = [ttft_s(request.trace) for request in sweep.requests if request.prompt.asked_len == asked_len]
    return [value for value in found if value is not None]


class TestOneRequestAtATime:
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, start: Any) -> Iterator[Any]:
        with start("transformers") as running:
            yield running

    def test_what_the_server_tells(self, engine: Any) -> None:
        found = engine.servers()
        assert found["engine"] == "openai (version unknown) (no answer of an engine we know)"
        assert found["model"] == "tiny-llama"
        assert found["endpoints"] == "chat, completions"
        for name in ("context limit", "KV pool", "hard limit", "slots", "prefix cache", "speculation"):
            assert found[name] == "unknown"
        for name in ("reports cached tokens", "continuous usage", "token-id prompts", "ignores EOS on demand"):
            assert found[name] == "no"
        assert "HTTP 422: Unexpected fields in the request: {'ignore_eos'}" in found["note"]

    @pytest.fixture(scope="class")
    @classmethod
    def sweep(cls, engine: Any) -> Any:
        return engine.sweep(*SIZES)

    def test_a_sweep_has_exact_counts(self, sweep: Any) -> None:
        assert_sound(sweep)
        assert {state for state, _ in sweep.guard("cold_prefix")} == {"not_verifiable"}
        assert sweep.states("bundled_tokens") == {"verified"}

    def test_the_early_role_chunk_is_no_first_token(self, engine: Any) -> None:
        sweep = engine.sweep("--context-len", "4k", "--decode-len", "8", "--repeats", "2")
        for request in sweep.requests:
            events = request.trace.events
            assert events.kinds == "o" + "t" * 8 + "f"
            ttft = ttft_s(request.trace)
            assert ttft == pytest.approx((events.gaps_us[0] + events.gaps_us[1]) / 1e6)
            # The role comes before anything was computed: the 4,000 tokens lie between it and the first text.
            assert events.gaps_us[1] > events.gaps_us[0]

    def test_a_sweep_on_the_completions_route(self, engine: Any) -> None:
        assert_sound(engine.sweep(*SIZES, "--endpoint", "completions"))

    def test_two_point(self, engine: Any) -> None:
        sweep = engine.sweep("--context-len", "512", "--repeats", "2", "--method", "two-point")
        assert sweep.exit_code == 0
        assert [request.trace.usage.completion_tokens for request in sweep.requests] == [1, 17] * 2
        assert sweep.states("cold_prefix") == {"not_verifiable"}

    def test_a_prompt_that_was_sent_before_is_no_hit_here(self, engine: Any, sweep: Any) -> None:
        kept = engine.sweep("--context-len", "4k", "--decode-len", "4", "--repeats", "3", "--keep-cache")
        _, *later = ttfts_s(kept, 4000)
        assert min(later) > min(ttfts_s(sweep, 4000)) / HIT_FACTOR
        assert kept.states("cold_prefix") == {"not_verifiable"}


class TestContinuousBatching:
    """Prefixes are reused, and no answer says so."""

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, start: Any) -> Iterator[Any]:
        flags = ("--continuous-batching", "--cb-num-blocks", "2048", "--cb-block-size", "32")
        with start("transformers", *flags) as running:
            yield running

    @pytest.fixture(scope="class")
    @classmethod
    def sweep(cls, engine: Any) -> Any:
        return engine.sweep(*SIZES)

    @pytest.fixture(scope="class")
    @classmethod
    def kept(cls, engine: Any) -> Any:
        return engine.sweep(*SIZES[:-1], "4", "--keep-cache")

    def test_a_sweep_has_exact_counts(self, sweep: Any) -> None:
        assert_sound(sweep)
        heads = [request.prompt.head for request in sweep.requests]
        assert len(set(heads)) == len(heads) == 9
        for state, evidence in sweep.guard("cold_prefix"):
            assert state == "not_verifiable"
            assert "the server tells no cached tokens; done against hits: unique_head" in evidence

    def test_unique_heads_keep_the_reuse_out(self, sweep: Any, kept: Any) -> None:
        _, *hits_s = ttfts_s(kept, 4000)
        assert min(ttfts_s(sweep, 4000)) > HIT_FACTOR * min(hits_s)

    def test_a_kept_cache_is_suspected_and_never_called_cold(self, kept: Any) -> None:
        assert_sound(kept)
        assert kept.states("cold_prefix") == {"not_verifiable"}
        _, evidence = kept.guard("cold_prefix")[-1]
        assert "not done: unique_head" in evidence
        assert "times the later ones: a warm-up effect, or hits after it" in evidence or "as a hit would" in evidence
        doubted = next(guard for guard in kept.points[-1]["guards"] if guard["name"] == "cold_prefix")["doubts"]
        assert {"ttft_s", "prefill_tok_s"} <= set(doubted)
