"""Columns, counts and figures of whole streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.adapters.stream import OUTPUT_TEXT_LIMIT, StreamReading, generated_texts
from deepdraft.records import Usage


def read(events: list[Any], stamps_us: list[int] | None = None) -> StreamReading:
    stream = StreamReading()
    for index, event in enumerate(events):
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        stream.add_event(stamps_us[index] if stamps_us else index * 1000, data)
    return stream


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": content, **more.pop("choice", {})}], **more}


def test_gaps_are_those_of_the_recording(recorded: Any) -> None:
    name = "llama.cpp-2026-10/chat_stream_timed_1300tok.sse"
    stamps = recorded.stamps_us(name)
    log = read(recorded.events(name), stamps).event_log()
    assert log.kinds == "o" + "t" * 6 + "fud"
    assert log.gaps_us[0] == 9_233_901
    assert sum(log.gaps_us) == stamps[-1]
    assert log.num_chars == (3, 3, 3, 3, 10, 9)


@given(st.lists(st.floats(min_value=0, max_value=2e-5), min_size=1, max_size=300))
def test_rounding_never_adds_up(gaps_s: list[float]) -> None:
    stream, at_s = StreamReading(), 0.0
    for gap_s in gaps_s:
        at_s += gap_s
        stream.add_comment(round(at_s * 1e6))
    assert abs(sum(stream.event_log().gaps_us) - at_s * 1e6) <= 0.51


def test_continuous_usage_gives_the_tokens_of_each_event(recorded: Any) -> None:
    stream = read(recorded.events("vllm-0.32.0/completions_stream_specdecode.sse"))
    log = stream.event_log()
    assert log.num_tokens == (1, 1, 1, 2, 2, 4, 5, 1, 1, 1, 2, 2, 1)
    assert log.num_tokens_source == "continuous usage"
    assert stream.usage() == Usage(prompt_tokens=5, completion_tokens=24, cached_tokens=0)
    assert sum(log.num_tokens) == 24


def test_token_ids_serve_where_usage_is_not_continuous(recorded: Any) -> None:
    events = [json.loads(data) for data in recorded.events("vllm-0.32.0/completions_stream_specdecode.sse")[:-1]]
    for event in events[:-1]:
        del event["usage"]
    log = read(events).event_log()
    assert log.num_tokens == (1, 1, 1, 2, 2, 4, 5, 1, 1, 1, 2, 2, 1)
    assert log.num_tokens_source == "token ids"


def test_timings_per_token(recorded: Any) -> None:
    stream = read(recorded.events("llama.cpp-2026-10/completions_stream_progress_timings.sse"))
    log = stream.event_log()
    assert log.num_tokens is not None
    assert set(log.num_tokens) == {1}
    assert log.num_tokens_source == "timings"
    assert stream.figures["timings"]["prompt_n"] == 1351


def test_no_count_where_only_the_end_has_usage(recorded: Any) -> None:
    for name in ("transformers-5.24.0/chat_stream.sse", "sglang-0.5.23/chat_stream.sse"):
        assert read(recorded.events(name)).event_log().num_tokens is None


def test_usage_on_the_last_text_chunk_alone_is_no_continuous_usage() -> None:
    events = [text("a"), text("b"), text("c", usage={"prompt_tokens": 1, "completion_tokens": 3})]
    stream = read(events)
    assert stream.event_log().num_tokens is None
    assert stream.usage() == Usage(prompt_tokens=1, completion_tokens=3)


def test_a_total_that_stays_zero_beside_text_counts_nothing() -> None:
    zero = {"prompt_tokens": 0, "completion_tokens": 0}
    assert read([text("a", usage=zero), text("b", usage=zero)]).event_log().num_tokens is None


def test_tokens_without_text_belong_to_the_next_event_with_text() -> None:
    def counted(tokens: int) -> dict[str, Any]:
        return {"usage": {"prompt_tokens": 1, "completion_tokens": tokens}}

    log = read([text("a", **counted(1)), text("", **counted(2)), text("é", **counted(3))]).event_log()
    assert (log.kinds, log.num_tokens) == ("tot", (1, 2))


def test_logprobs_count_tokens() -> None:
    events = [
        text("ab", choice={"logprobs": {"tokens": ["a", "b"]}}),
        text("c", choice={"logprobs": {"tokens": ["c"]}}),
    ]
    log = read(events).event_log()
    assert (log.num_tokens, log.num_tokens_source) == ((2, 1), "logprobs")


def test_native_sglang_text_is_cumulative(recorded: Any) -> None:
    stream = read(recorded.events("sglang-0.5.23/generate_stream.sse"))
    log = stream.event_log()
    assert log.kinds == "tttd"
    assert log.num_chars == (3, 3, 6)
    assert (log.num_tokens, log.num_tokens_source) == ((1, 1, 2), "meta_info")
    assert stream.output_text() == " ST ST ST ST"
    assert stream.usage() == Usage(prompt_tokens=5, completion_tokens=4, cached_tokens=4, reasoning_tokens=0)
    assert stream.figures["meta_info"]["e2e_latency"] == pytest.approx(0.1358, abs=1e-4)


def test_native_sglang_with_incremental_output() -> None:
    def event(content: str, ids: list[int], total: int) -> dict[str, Any]:
        return {"text": content, "output_ids": ids, "meta_info": {"completion_tokens": total, "prompt_tokens": 5}}

    stream = read([event("a", [1], 1), event("bc", [2, 3], 3)])
    log = stream.event_log()
    assert (log.num_chars, log.num_tokens) == ((1, 2), (1, 2))
    assert stream.output_text() == "abc"


def test_a_cumulative_event_without_new_text_is_no_token() -> None:
    def event(total: int, finish: Any) -> dict[str, Any]:
        return {"text": "a", "output_ids": [1], "meta_info": {"completion_tokens": total, "finish_reason": finish}}

    assert read([event(1, None), event(1, {"type": "length"})]).event_log().kinds == "tf"


def test_reasoning_then_answer(tools: Any) -> None:  # C11, C15
    def chunk(tokens: int, **content: Any) -> dict[str, Any]:
        counts = {"prompt_tokens": 9, "completion_tokens": tokens}
        return {"choices": [{"index": 0, "delta": content}], "usage": counts}

    stream = read([chunk(48, reasoning="x" * 100), chunk(50, content="Dog"), b"[DONE]"])
    log = stream.event_log()
    assert (log.kinds, log.num_tokens, log.num_chars) == ("rtd", (48, 2), (100, 3))
    assert stream.output_text() == "Dog"
    assert sum(log.num_tokens or ()) == 50


def test_reasoning_alone_has_no_answer_text() -> None:  # C12
    stream = read([{"choices": [{"delta": {"reasoning_content": "hm"}}]}, b"[DONE]"])
    assert (stream.event_log().kinds, stream.output_text()) == ("rd", None)


def test_cached_tokens_that_are_not_said_are_not_zero(recorded: Any) -> None:  # C02
    silent = read(recorded.events("sglang-0.5.23/chat_stream.sse")).usage()
    said = read(recorded.events("sglang-0.5.23/chat_stream_timed.sse")).usage()
    assert silent is not None
    assert said is not None
    assert (silent.cached_tokens, said.cached_tokens) == (None, 0)
    absent = read(recorded.events("vllm-0.32.0/chat_stream.sse")).usage()
    assert absent is not None
    assert absent.cached_tokens is None


def test_a_later_usage_without_details_does_not_erase_them() -> None:
    first = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}}
    last = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": None}
    stream = read([text("a", usage=first), text("b", usage=last)])
    assert stream.usage() == Usage(prompt_tokens=5, completion_tokens=2, cached_tokens=3)


def test_engine_figures_in_their_own_chunks(recorded: Any) -> None:
    name = "vllm-0.32.0/completions_stream_per_request_metrics.sse"
    assert read(recorded.events(name)).figures["metrics"]["queue_time_ms"] == pytest.approx(0.0625, abs=1e-3)
    parts = [
        {"choices": [], "sglext": {"cached_tokens_details": {"device": 0, "host": 0}}},
        {"choices": [], "sglext": {"spec_tokens_details": {"spec_verify_ct": 2}}},
    ]
    assert set(read(parts).figures["sglext"]) == {"cached_tokens_details", "spec_tokens_details"}


def test_long_lists_among_the_figures_are_left_out() -> None:
    meta = {"completion_tokens": 1, "input_token_logprobs": [0.0] * 5000, "spec_correct_drafts_histogram": [1, 2]}
    kept = read([{"text": "a", "output_ids": [1], "meta_info": meta}]).figures["meta_info"]
    assert kept == {"completion_tokens": 1, "spec_correct_drafts_histogram": [1, 2]}


def test_only_the_head_of_a_long_answer_is_kept() -> None:
    stream = read([text("x" * 1000)] * 10)
    assert stream.output_text() == "x" * OUTPUT_TEXT_LIMIT
    assert sum(stream.event_log().num_chars) == 10_000


def test_texts_for_a_tokenizer(recorded: Any) -> None:
    events = [(data, None) for data in recorded.events("sglang-0.5.23/generate_stream.sse")]
    assert generated_texts(events) == [" ST", " ST", " ST ST"]
    call = {"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}]}
    assert generated_texts([(json.dumps(call).encode(), None), (b"[DONE]", None)]) == ["f{}"]
