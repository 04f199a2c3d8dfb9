"""Recorded metrics pages under our own names."""

from __future__ import annotations

from typing import Any

from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.counter import CounterMap, reading, series
from deepdraft.adapters.detect import ADAPTERS
from deepdraft.records import ServerReading


def read(engine: str, text: str) -> ServerReading:
    adapter: type[Adapter] = ADAPTERS[engine]
    assert adapter.counter_map is not None
    return reading(adapter.counter_map.page(text), adapter.counter_map, 1.5, "/metrics")


def test_sglang(recorded: Any) -> None:
    found = read("sglang", recorded.text("sglang-0.5.23/metrics.txt"))
    assert (found.at_s, found.num_running, found.num_waiting) == (1.5, 0, 0)
    assert found.counters == {
        "prompt_tokens": 17153.0,
        "generation_tokens": 144.0,
        "cached_tokens": 8571.0,
        "num_requests": 6.0,
    }
    assert found.gauges == {}  # spec_accept_length reads 0 without a drafter: that is no acceptance length


def test_sglang_ranks_that_repeat_each_other() -> None:
    page = (
        'sglang:num_running_reqs{tp_rank="0",pid="1"} 2\nsglang:num_running_reqs{tp_rank="1",pid="2"} 2\n'
        'sglang:realtime_tokens_total{mode="prefill_cache",tp_rank="0"} 7\n'
        'sglang:realtime_tokens_total{mode="prefill_cache",tp_rank="1"} 7\n'
        'sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 99\n'
    )
    found = read("sglang", page)
    assert (found.num_running, found.counters["cached_tokens"]) == (2, 7.0)


def test_sglang_cached_tokens_of_three_storage_levels() -> None:
    page = "".join(
        f'sglang:prefill_effective_tokens_total{{mode="{mode}"}} {value}\n'
        for mode, value in (("input", 100), ("device_hit", 1), ("host_hit", 20), ("storage_hit", 300))
    )
    assert read("sglang", page).counters["cached_tokens"] == 321.0


def test_vllm(recorded: Any) -> None:
    found = read("vllm", recorded.text("vllm-0.32.0/metrics_specdecode_ngram.txt"))
    assert (found.num_running, found.num_waiting) == (0, 0)
    assert found.counters == {
        "prompt_tokens": 100950.0,
        "generation_tokens": 512.0,
        "cached_tokens": 50304.0,
        "num_requests": 8.0,
        "spec_drafts": 112.0,
        "spec_draft_tokens": 392.0,
        "spec_accepted_tokens": 392.0,
        "spec_accepted_at_0": 112.0,
        "spec_accepted_at_1": 96.0,
        "spec_accepted_at_2": 96.0,
        "spec_accepted_at_3": 88.0,
        "num_preemptions": 0.0,
    }


def test_vllm_without_a_drafter_has_no_drafts(recorded: Any) -> None:
    found = read("vllm", recorded.text("vllm-0.32.0/metrics_after_prefix_cache.txt"))
    assert not [name for name in found.counters if name.startswith("spec_")]
    assert found.counters["cached_tokens"] > 0


def test_vllm_engines_are_added_up() -> None:
    page = 'vllm:num_requests_running{engine="0"} 1.0\nvllm:num_requests_running{engine="1"} 2.0\n'
    assert read("vllm", page).num_running == 3


def test_llamacpp_prompt_tokens_have_the_cached_ones_in(recorded: Any) -> None:
    found = read("llamacpp", recorded.text("llama.cpp-2026-10/metrics_after.txt"))
    assert (found.counters["prompt_tokens"], found.counters["cached_tokens"]) == (6141 + 94, 94)
    busy = read("llamacpp", recorded.text("llama.cpp-2026-10/metrics_busy.txt"))
    assert (busy.num_running, busy.num_waiting) == (1, 0)


def test_llamacpp_speculation(recorded: Any) -> None:
    found = read("llamacpp", recorded.text("llama.cpp-2026-10/metrics_spec_synthr.txt"))
    assert found.counters["spec_drafts"] == 45
    assert [found.counters[f"spec_accepted_at_{depth}"] for depth in range(4)] == [32, 26, 16, 7]
    assert sum((32, 26, 16, 7)) == found.counters["spec_accepted_tokens"]


def test_tensorrt_llm_counts_each_token_once() -> None:
    page = (
        'trtllm_prompt_tokens_total{model_name="m"} 10\ntrtllm_prompt_cached_tokens_total{model_name="m"} 4\n'
        'trtllm_request_success_total{finished_reason="length"} 2\ntrtllm_num_requests_completed_total 2\n'
        "trtllm_spec_decode_num_draft_tokens_total 8\ntrtllm_spec_decode_num_accepted_tokens_total 6\n"
        "trtllm_spec_decode_drafted_tokens_total 8\ntrtllm_spec_decode_accepted_tokens_total 6\n"
        "trtllm_num_requests_running 1\ntrtllm_num_requests_waiting 0\n"
    )
    found = read("tensorrt_llm", page)
    assert (found.num_running, found.num_waiting) == (1, 0)
    assert found.counters["spec_draft_tokens"] == 8
    assert found.counters["num_requests"] == 2
    newer = "trtllm_spec_decode_drafted_tokens_total 8\ntrtllm_spec_decode_accepted_tokens_total 6\n"
    assert read("tensorrt_llm", newer).counters == {"spec_draft_tokens": 8.0, "spec_accepted_tokens": 6.0}


def test_lmdeploy() -> None:
    page = (
        'lmdeploy:prompt_tokens_total{engine="0"} 10\nlmdeploy:generation_tokens_total{engine="0"} 8\n'
        'lmdeploy:num_requests_running{engine="0"} 1\nlmdeploy:spec_decode_num_drafts_total{engine="0"} 3\n'
    )
    found = read("lmdeploy", page)
    assert found.counters == {"prompt_tokens": 10.0, "spec_drafts": 3.0}  # its generated tokens may be doubled
    assert found.num_running == 1


def test_a_counter_that_is_not_there_is_absent() -> None:
    where = CounterMap(counters={"a": (series("x_total") + series("y_total"),), "b": (series("z"), series("w"))})
    found = reading(where.page("x_total 1\nw 5\n"), where, 0.0, "here")
    assert found.counters == {"b": 5.0}
    assert found.num_running is None
