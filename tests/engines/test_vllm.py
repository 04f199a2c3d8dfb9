"""Sweeps against a real vLLM with its n-gram drafter, with and without its figures for each request."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from deepdraft.metrics import acceptance_len
from deepdraft.records import RequestTrace

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

SIZES = ("--context-len", "512,2k,4k", "--decode-len", "32", "--repeats", "3")
LENS = [512, 2000, 4000]
BLOCK_LEN = 128
"""vLLM's page on a CPU: a prefix is found in whole pages only."""
DRAFT_LEN = 4


def counter(engine: Any, name: str) -> float:
    """A counter straight from the server's page."""
    pattern = rf"^vllm:{name}\{{[^}}]*\}} ([0-9.e+]+)$"
    return sum(float(value) for value in re.findall(pattern, engine.get("/metrics"), re.MULTILINE))


def assert_sound(sweep: Any) -> None:
    """Every point was measured, with exact counts, cold, and alone."""
    assert sweep.exit_code == 0
    assert [point["context_len"] for point in sweep.points] == LENS
    for request in sweep.requests:
        assert request.failure is None
        assert request.trace.usage.prompt_tokens == request.prompt.asked_len == request.prompt.expected_len
        assert request.trace.usage.completion_tokens == request.max_tokens == 32
        assert sum(request.trace.events.num_tokens) == 32
        assert request.trace.events.num_tokens_source == "continuous usage"
    for name in ("cold_prefix", "prompt_len", "truncation", "early_stop", "bundled_tokens", "background_load"):
        assert sweep.states(name) == {"verified"}, sweep.guard(name)


class TestWithFiguresForEachRequest:
    """--per-request-spec-decode-metrics detailed, --enable-prompt-tokens-details, dev mode."""

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, start: Any) -> Iterator[Any]:
        with start("vllm") as running:
            yield running

    @pytest.fixture(scope="class")
    @classmethod
    def sweep(cls, engine: Any) -> Any:
        return engine.sweep(*SIZES, "--text", "repeat")

    def test_what_the_server_is(self, engine: Any) -> None:
        found = engine.servers()
        pool = int(re.search(r'kv_cache_size_tokens="(\d+)"', engine.get("/metrics"))[1])
        assert found["engine"] == f"vllm {engine.get('/version')['version']} (owned_by in /v1/models)"
        assert found["model"] == "tiny-llama"
        assert found["context limit"] == found["hard limit"] == "32,768 tokens"
        assert found["KV pool"] == f"{pool:,} tokens, page size {BLOCK_LEN}"
        assert found["slots"] == "16"
        assert found["made cold by"] == "unique head, flush, cache_salt"
        assert found["speculation"] == "yes (ngram)"
        for name in ("prefix cache", "reports cached tokens", "reports acceptance", "continuous usage", "counters"):
            assert found[name] == "yes"
        for name in ("token-id prompts", "ignores EOS on demand", "tokenize endpoint"):
            assert found[name] == "yes"
        assert "note" not in found

    def test_a_sweep_is_cold_exact_and_alone(self, sweep: Any) -> None:
        assert_sound(sweep)
        assert {evidence for _, evidence in sweep.guard("cold_prefix")} == {"0 cached tokens in each of 3 answers"}
        flushes = [step for trial in sweep.trials for step in trial.cold_steps if step.means == "flush"]
        assert len(flushes) == 9
        assert {step.evidence for step in flushes} == {'POST /reset_prefix_cache: HTTP 200, {"success":true}'}

    def test_acceptance_of_each_answer_agrees_with_the_counters(self, sweep: Any) -> None:
        trials = {trial.trial_id: trial for trial in sweep.trials}
        for request in sweep.requests:
            stated, counted = request.acceptance, trials[request.trial_id].acceptance
            assert stated.source.startswith("metrics.speculative_decoding of the answer")
            assert counted.source == "counters of /metrics before and after"
            assert stated.num_accepted_tokens > 0
            assert (stated.num_steps, stated.num_draft_tokens, stated.num_accepted_tokens) == (
                counted.num_steps,
                counted.num_draft_tokens,
                counted.num_accepted_tokens,
            )
            histogram = stated.accepted_len_histogram
            at_depth = tuple(sum(histogram[depth:]) for depth in range(1, DRAFT_LEN + 1))
            assert counted.accepted_at_depth == at_depth
            assert stated.doubt is None
        for point in sweep.points:
            figure = point["acceptance_len"]
            expected = [
                1 + request.acceptance.num_accepted_tokens / request.acceptance.num_steps
                for request in sweep.requests
                if request.prompt.asked_len == point["context_len"]
            ]
            assert (figure["low"], figure["high"]) == pytest.approx((min(expected), max(expected)))

    def test_steps_and_tokens_of_the_stream_fit_the_counts(self, sweep: Any) -> None:
        for request in sweep.requests:
            tokens = request.trace.events.num_tokens
            accepted_in_stream = sum(tokens) - len(tokens)  # each event is a step: its bonus token is not a draft
            # Only drafts of the last step can be missing, cut off by max_tokens. (Events merged on a busy machine
            # hide steps, and make the stream's count larger, not smaller.)
            cut = request.acceptance.num_accepted_tokens - accepted_in_stream
            assert cut <= DRAFT_LEN

    def test_the_flush_empties_the_cache(self, engine: Any) -> None:
        prompt = list(range(1000, 1000 + 700)) + [random.randrange(300, 40_000) for _ in range(200)]
        random.shuffle(prompt)

        async def use(adapter: Any) -> list[RequestTrace]:
            traces = [await adapter.probed(prompt), await adapter.probed(prompt)]
            step = await adapter.flush()
            assert step.is_done, step.evidence
            return [*traces, await adapter.probed(prompt)]

        traces = engine.ask(use, endpoint="completions", keep_cache=True)
        cached = [trace.usage.cached_tokens for trace in traces if trace.usage is not None]
        assert cached == [0, len(prompt) // BLOCK_LEN * BLOCK_LEN, 0]

    def test_a_salt_separates_what_is_the_same(self, engine: Any) -> None:
        prompt = [random.randrange(300, 40_000) for _ in range(600)]

        async def use(adapter: Any) -> list[RequestTrace]:
            return [await adapter.probed(prompt) for _ in range(3)]

        traces = engine.ask(use, endpoint="completions")
        assert [trace.usage.cached_tokens for trace in traces if trace.usage is not None] == [0, 0, 0]

    def test_a_kept_cache_makes_the_guard_speak(self, engine: Any) -> None:
        sweep = engine.sweep(*SIZES, "--keep-cache", "--strict")
        assert sweep.exit_code == 6
        for length, (state, evidence) in zip(LENS, sweep.guard("cold_prefix"), strict=True):
            hit_len = (length - 1) // BLOCK_LEN * BLOCK_LEN
            assert state == "violated"
            assert evidence.startswith(f"2 of 3 requests were served from a cache: up to {hit_len:,} of {length:,}")

    def test_a_point_above_the_limit_is_not_sent(self, engine: Any) -> None:
        before = counter(engine, "prompt_tokens_total")
        sweep = engine.sweep("--context-len", "512,40k", "--decode-len", "8", "--repeats", "1")
        assert sweep.exit_code == 1
        assert sweep.facts["refusals"] == [
            {
                "context_len": 40_000,
                "concurrency": 1,
                "reason": "40,000 prompt + 8 output tokens exceed the server's context limit of 32,768",
            }
        ]
        assert [point["context_len"] for point in sweep.points] == [512]
        assert counter(engine, "prompt_tokens_total") - before < 5_000

    def test_two_point(self, engine: Any) -> None:
        sweep = engine.sweep(*SIZES, "--method", "two-point")
        assert sweep.exit_code == 0
        first = [request for request in sweep.requests if request.role == "first"]
        second = [request for request in sweep.requests if request.role == "second"]
        assert [len(first), len(second)] == [9, 9]
        for one, other in zip(first, second, strict=True):
            assert (one.trace.usage.completion_tokens, other.trace.usage.completion_tokens) == (1, 33)
            assert one.trace.usage.cached_tokens == other.trace.usage.cached_tokens == 0
            assert one.trace.usage.prompt_tokens == other.trace.usage.prompt_tokens == one.prompt.asked_len
            assert one.prompt.head != other.prompt.head
            # One token comes from the prefill: nothing was verified, and 1.0 would be no acceptance length.
            assert (one.acceptance.num_steps, acceptance_len(one.acceptance)) == (0, None)
        assert sweep.states("cold_prefix") == sweep.states("background_load") == {"verified"}
        for point in sweep.points:
            assert point["acceptance_len"]["num_samples"] == 3

    def test_requests_at_once_keep_their_own_acceptance(self, engine: Any) -> None:
        sweep = engine.sweep("--context-len", "512", "--decode-len", "32", "--repeats", "2", "--concurrency", "4")
        assert sweep.exit_code == 0
        assert sweep.points[0]["acceptance_len"]["num_samples"] == 8
        for trial in sweep.trials:
            own = [request.acceptance for request in sweep.requests if request.trial_id == trial.trial_id]
            assert len(own) == 4
            assert trial.acceptance.num_steps == sum(one.num_steps for one in own)
            assert trial.acceptance.num_accepted_tokens == sum(one.num_accepted_tokens for one in own)
        assert sweep.states("background_load") == {"verified"}


class TestWithCountersOnly:
    """The flags that a plain deployment has: no figures in the answers, counters in /metrics."""

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, start: Any) -> Iterator[Any]:
        flags = ("--per-request-spec-decode-metrics", "none", "--no-enable-per-request-metrics")
        with start("vllm", *flags, "--no-enable-prompt-tokens-details") as running:
            yield running

    def test_what_the_server_does_not_tell(self, engine: Any) -> None:
        found = engine.servers()
        assert found["reports cached tokens"] == found["reports acceptance"] == "no"
        assert found["counters"] == "yes"
        assert found["speculation"] == "yes (ngram)"
        assert "--enable-prompt-tokens-details" in found["note"]
        assert "--per-request-spec-decode-metrics" in found["note"]

    def test_cold_and_acceptance_by_counters(self, engine: Any) -> None:
        steps, accepted = counter(engine, "spec_decode_num_drafts_total"), 0
        sweep = engine.sweep(*SIZES, "--text", "repeat", "--warmups", "0")
        steps = counter(engine, "spec_decode_num_drafts_total") - steps
        assert_sound(sweep)
        for _, evidence in sweep.guard("cold_prefix"):
            assert evidence == "the server's counter of cached tokens rose by 0 over 3 requests"
        for request in sweep.requests:
            assert request.trace.usage.cached_tokens is None
            assert request.trace.server_fields == {}
            assert request.acceptance.source == "counters of /metrics before and after"
            accepted += request.acceptance.num_accepted_tokens
            figure = acceptance_len(request.acceptance)
            assert figure is not None
            assert 1 < figure.value <= 1 + DRAFT_LEN
        assert accepted > 0
        # Nothing but the probes of the start lies outside the measured requests.
        assert 0 <= steps - sum(request.acceptance.num_steps for request in sweep.requests) <= 20

    def test_a_kept_cache_shows_in_the_counters(self, engine: Any) -> None:
        sweep = engine.sweep("--context-len", "512,2k", "--decode-len", "8", "--repeats", "3", "--keep-cache")
        for length, (state, evidence) in zip(LENS, sweep.guard("cold_prefix"), strict=False):
            hit_len = 2 * ((length - 1) // BLOCK_LEN * BLOCK_LEN)
            assert state == "violated"
            assert evidence.startswith(f"the server's counter of cached tokens rose by {hit_len:,} over 3 requests")
