"""Acceptance from every source."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deepdraft.adapters import acceptance as source
from deepdraft.adapters.acceptance_choice import acceptance_len
from deepdraft.records import ServerReading


def reading(gauges: dict[str, float] | None = None, **counters: float) -> ServerReading:
    return ServerReading(at_s=0.0, source="/metrics", counters=counters, gauges=gauges or {})


def timings(recorded: Any, name: str) -> dict[str, Any]:
    last = json.loads(recorded.events(f"llama.cpp-2026-10/{name}.sse")[-2])
    result: dict[str, Any] = last["timings"]
    return result


@pytest.mark.parametrize(
    ("name", "drafted", "accepted", "steps"),
    # 63 tokens came after the one that the prefill sampled; each step commits what it accepted and one more.
    [
        ("spec_selfdraft", 52, 52, 11),
        ("spec_synthr", 90, 40, 23),
        ("spec_tinydraft", 300, 0, 63),
        ("spec_ngram_mod", 35, 35, 28),
    ],
)
def test_llamacpp_timings(recorded: Any, name: str, drafted: int, accepted: int, steps: int) -> None:
    found = source.of_llamacpp_timings(timings(recorded, name))
    assert found is not None
    assert (found.num_draft_tokens, found.num_accepted_tokens, found.num_steps) == (drafted, accepted, steps)


def test_llamacpp_without_a_draft_says_nothing(recorded: Any) -> None:
    assert source.of_llamacpp_timings(timings(recorded, "spec_none")) is None


def test_vllm_figures_of_one_request() -> None:
    found = source.of_vllm_metrics(
        {
            "speculative_decoding": {
                "mean_acceptance_length": 2.5,
                "draft_acceptance_rate": 0.5,
                "acceptance_histogram": [1, 2, 2, 3],
                "num_spec_steps": 8,
                "num_accepted_draft_tokens": 15,
                "num_draft_tokens": 24,
                "num_spec_tokens": 3,
                "per_step_accepted": [3, 3, 3, 2, 2, 1, 1, 0],
                "per_step_drafted": [3] * 8,
            }
        }
    )
    assert found is not None
    assert (found.num_steps, found.num_draft_tokens, found.num_accepted_tokens) == (8, 24, 15)
    assert found.accepted_len_histogram == (1, 2, 2, 3)
    assert found.accepted_len_by_step == (3, 3, 3, 2, 2, 1, 1, 0)
    assert "2.50, its counts give 2.88" in (found.doubt or "")  # 1 + 15/8: the server contradicts itself
    assert source.of_vllm_metrics({"speculative_decoding": None}) is None


def test_vllm_states_a_mean_of_one_where_nothing_was_verified() -> None:
    figures = {  # recorded: an answer of one token
        "mean_acceptance_length": 1.0,
        "draft_acceptance_rate": 0.0,
        "acceptance_histogram": [0, 0, 0, 0, 0],
        "num_spec_steps": 0,
        "num_accepted_draft_tokens": 0,
        "num_draft_tokens": 0,
        "num_spec_tokens": 4,
    }
    found = source.of_vllm_metrics({"speculative_decoding": figures})
    assert found is not None
    assert (found.num_steps, found.num_accepted_tokens, found.stated_acceptance_len) == (0, 0, None)
    assert acceptance_len(found) is None
    assert source.of_vllm_metrics({"speculative_decoding": {"num_spec_tokens": 4}}) is None


def test_vllm_histogram_as_an_object() -> None:
    figures = {"num_spec_steps": 3, "num_accepted_draft_tokens": 4, "acceptance_histogram": {"0": 1, "2": 2}}
    found = source.of_vllm_metrics({"speculative_decoding": figures})
    assert found is not None
    assert (found.accepted_len_histogram, found.doubt) == ((1, 0, 2), None)


SGLANG = {
    "spec_accept_rate": 0.5,
    "spec_accept_length": 3.2,
    "spec_num_correct_drafts": 10,
    "spec_num_proposed_drafts": 20,
    "spec_verify_ct": 5,
    "spec_correct_drafts_histogram": [1, 1, 1, 1, 1],
}


def test_sglang_counts_leave_the_prefill_token_out() -> None:
    found = source.of_sglang_figures(SGLANG, completion_tokens=16)
    assert found is not None
    assert (found.num_steps, found.num_accepted_tokens, found.num_draft_tokens) == (5, 10, 20)
    assert found.accepted_len_histogram == (1, 1, 1, 1, 1)
    assert acceptance_len(found) == 3.0  # not 16 / 5
    assert found.doubt is None


def test_sglang_older_names() -> None:
    old = {
        "spec_verify_ct": 5,
        "spec_accepted_drafts": 10,
        "spec_proposed_drafts": 20,
        "spec_accept_histogram": [1, 1, 1, 1, 1],
        "spec_accept_length": 3.2,
    }
    found = source.of_sglang_figures(old, 16)
    assert found == source.of_sglang_figures(SGLANG, 16)


def test_sglang_with_verify_steps_alone() -> None:
    found = source.of_sglang_figures({"spec_verify_ct": 5, "spec_accept_length": 3.2}, 16)
    assert found is not None
    assert (found.num_accepted_tokens, found.stated_acceptance_len) == (10, None)
    stated = source.of_sglang_figures({"spec_verify_ct": 5, "spec_accept_length": 3.2}, None)
    assert stated is not None
    assert (stated.num_accepted_tokens, stated.stated_acceptance_len) == (None, 3.2)
    assert "prefill" in (stated.doubt or "")


def test_sglang_without_verify_steps_says_nothing() -> None:
    assert source.of_sglang_figures({"spec_verify_ct": 0, "spec_accept_length": 0.0}, 16) is None
    assert source.of_sglang_figures({}, 16) is None


def test_a_histogram_that_does_not_fit_its_total_is_said() -> None:
    found = source.of_sglang_figures({**SGLANG, "spec_correct_drafts_histogram": [0, 0, 0, 0, 5]}, 16)
    assert found is not None
    assert "histogram counts 20 accepted tokens, the total 10" in (found.doubt or "")


def test_tensorrt_figure() -> None:
    found = source.of_tensorrt_figure(2.4)
    assert found is not None
    assert found.stated_acceptance_len == 2.4
    assert source.of_tensorrt_figure(1.0) is None
    assert source.of_tensorrt_figure(None) is None


def test_counters_around_a_request() -> None:
    before = reading(spec_drafts=100, spec_draft_tokens=350, spec_accepted_tokens=300, spec_accepted_at_0=90)
    after = reading(
        spec_drafts=112, spec_draft_tokens=392, spec_accepted_tokens=330, spec_accepted_at_0=100, spec_accepted_at_1=8
    )
    found = source.of_counters(before, after)
    assert found is not None
    assert (found.num_steps, found.num_draft_tokens, found.num_accepted_tokens) == (12, 42, 30)
    assert found.accepted_at_depth == (10, 8)
    assert "/metrics" in found.source


def test_counters_that_did_not_move_or_went_back_say_nothing() -> None:
    counts = reading(spec_drafts=5, spec_draft_tokens=20, spec_accepted_tokens=10)
    assert source.of_counters(counts, counts) is None
    assert source.of_counters(counts, reading(spec_drafts=1, spec_draft_tokens=4, spec_accepted_tokens=1)) is None
    assert source.of_counters(reading(), reading(prompt_tokens=5)) is None


def test_sglang_counters_give_verify_steps_only() -> None:
    before = reading(generation_tokens=100, num_requests=3, spec_drafts=40)
    after = reading(generation_tokens=116, num_requests=4, spec_drafts=45)
    found = source.of_counters(before, after)
    assert found is not None
    assert (found.num_steps, found.num_accepted_tokens) == (5, 10)  # 16 - 1 - 5
    assert "generated tokens - requests - verify steps" in found.source


def test_a_gauge_that_moved_is_a_lifetime_average() -> None:  # C52
    before, after = reading({"spec_acceptance_len": 2.0}), reading({"spec_acceptance_len": 2.1})
    found = source.of_gauge(before, after)
    assert found is not None
    assert found.is_lifetime_average
    assert "every 40 decode steps" in (found.doubt or "")
    assert "last flush" in (found.doubt or "")


def test_a_gauge_that_did_not_move_is_no_figure() -> None:  # C52
    still = reading({"spec_acceptance_len": 2.0})
    assert source.of_gauge(still, still) is None
    assert source.of_gauge(None, still) is None
    assert source.of_gauge(still, reading()) is None
    fresh = source.of_gauge(reading(), still)  # it is absent after a flush, and came back
    assert fresh is not None
    assert fresh.stated_acceptance_len == 2.0
