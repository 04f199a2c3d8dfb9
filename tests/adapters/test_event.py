"""What single events say, against recorded bytes and the shapes that servers are known to send."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.adapters.event import event_facts
from deepdraft.records import trace

# Kind of each event, by recording. t text, o role only or empty, p progress, f finish, u usage, d [DONE], e error.
KINDS = {
    "llama.cpp-2026-10/chat_stream.sse": "o" + "t" * 7 + "fud",
    "llama.cpp-2026-10/chat_stream_no_usage_option.sse": "o" + "t" * 7 + "fd",
    "llama.cpp-2026-10/native_completion_stream.sse": "ttttt" + "f",
    "llama.cpp-2026-10/spec_selfdraft.sse": "t" * 64 + "fd",
    "sglang-0.5.23/chat_stream.sse": "o" + "t" * 8 + "fud",
    "sglang-0.5.23/generate_stream.sse": "tttd",
    "transformers-5.24.0/chat_stream.sse": "o" + "t" * 7 + "f",
    "transformers-5.24.0/completions_stream.sse": "t" * 6 + "f",
    "transformers-5.24.0/chat_stream_timed.sse": "of",
    "vllm-0.32.0/chat_stream.sse": "o" + "t" * 7 + "fud",
    "vllm-0.32.0/completions_stream.sse": "t" * 8 + "ud",
    "vllm-0.32.0/completions_stream_specdecode.sse": "t" * 13 + "ud",
    "vllm-0.32.0/stream_engine_died.sse": "ed",
}


def facts(payload: Any, event_type: str | None = None) -> Any:
    return event_facts(json.dumps(payload).encode(), event_type)


def delta(**content: Any) -> Any:
    return facts({"choices": [{"index": 0, "delta": content}]})


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_recorded_events(recorded: Any, name: str) -> None:
    assert "".join(event_facts(data).kind for data in recorded.events(name)) == KINDS[name]


def test_progress_is_no_token(recorded: Any) -> None:
    found = [
        event_facts(data) for data in recorded.events("llama.cpp-2026-10/completions_stream_progress_timings.sse")
    ]
    assert [f.kind for f in found[:3]] == ["p", "p", "t"]
    assert found[1].figures["prompt_progress"] == {"total": 1351, "cache": 0, "processed": 1351, "time_ms": 9376}
    assert [f.timings_tokens for f in found[2:6]] == [1, 2, 3, 4]


def test_the_role_and_empty_content_are_no_text() -> None:  # C10, C13
    assert delta(role="assistant").kind == trace.EMPTY
    assert delta(content=None).kind == trace.EMPTY
    assert delta(role="assistant", content="").kind == trace.EMPTY
    assert delta(content="a").kind == trace.TEXT


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_under_either_name(key: str) -> None:  # C11, C12
    found = delta(**{key: "hm", "content": None})
    assert (found.kind, found.reasoning, found.answer) == (trace.REASONING, "hm", "")


def test_reasoning_sent_under_both_names_counts_once() -> None:
    assert delta(reasoning_content="hm", reasoning="hm").text == "hm"


def test_reasoning_and_answer_in_one_event_is_an_answer() -> None:
    found = delta(reasoning_content="so", content="Dog")
    assert (found.kind, found.text) == (trace.TEXT, "soDog")


def test_tool_calls_carry_their_name_and_arguments() -> None:
    call = {"index": 0, "id": "call_0", "type": "function", "function": {"name": "find", "arguments": '{"a"'}}
    assert delta(tool_calls=[call]).tool_call == 'find{"a"'
    assert delta(tool_calls=[call]).kind == trace.TOOL_CALL
    assert delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}]).text == ":1}"
    assert delta(function_call={"name": "f", "arguments": "{}"}).kind == trace.TOOL_CALL
    assert delta(tool_calls=[{"index": 0, "id": "call_0"}]).kind == trace.EMPTY


def test_refusals_and_typed_parts_are_text() -> None:
    assert delta(refusal="No.").answer == "No."
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "Dog"},
    ]
    found = delta(content=parts)
    assert (found.answer, found.reasoning) == ("Dog", "hm")


def test_sglang_finish_reason_as_an_object() -> None:
    abort = {"type": "abort", "message": "out of memory", "status_code": 500, "err_type": "x"}
    found = facts({"text": "", "output_ids": [], "meta_info": {"finish_reason": abort, "completion_tokens": 0}})
    assert (found.finish_reason, found.finish_message) == ("abort", "out of memory")
    assert found.kind == trace.FINISH


@pytest.mark.parametrize(
    "payload",
    [
        {"error": {"message": "boom", "code": 500}},
        {"error": "boom"},
        {"object": "error", "message": "boom", "code": 400},
        {"error": {"message": "boom"}, "choices": []},
    ],
)
def test_errors_of_every_shape(payload: Any) -> None:  # C40, C45
    found = facts(payload)
    assert found.kind == trace.ERROR
    assert "boom" in str(found.error)


def test_a_null_error_is_none() -> None:
    assert facts({"error": None, "choices": [{"delta": {"content": "a"}}]}).kind == trace.TEXT


def test_an_event_of_type_error_is_one_whatever_it_holds() -> None:
    assert event_facts(b"the model crashed", "error").error == "the model crashed"
    assert facts("overloaded", "error").error == "overloaded"
    assert event_facts(b"the model crashed").kind == trace.OTHER


def test_usage_wherever_it_is() -> None:
    counts = {"prompt_tokens": 5, "completion_tokens": 2}
    assert facts({"choices": [], "usage": counts}).kind == trace.USAGE
    assert facts({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": counts}).usage == counts
    assert facts({"choices": [], "x_groq": {"usage": counts}}).usage_tokens == 2
    assert facts({"choices": [], "usage": None}).kind == trace.OTHER


def test_engine_figures_are_kept_and_are_no_tokens() -> None:
    details = {"spec_tokens_details": {"spec_verify_ct": 3}}
    found = facts({"choices": [], "sglext": details})
    assert (found.kind, found.figures) == (trace.USAGE, {"sglext": details})
    per_iter = facts({"choices": [{"delta": {"content": "a"}, "avg_decoded_tokens_per_iter": 2.5}]})
    assert per_iter.figures == {"avg_decoded_tokens_per_iter": 2.5}


def test_token_ids_and_logprobs_are_counted() -> None:
    ids = facts({"choices": [{"text": "ab", "token_ids": [1, 2]}]})
    assert ids.num_token_ids == 2
    chat = facts({"choices": [{"delta": {"content": "ab"}, "logprobs": {"content": [{}, {}, {}]}}]})
    assert chat.num_logprobs == 3
    text = facts({"choices": [{"text": "ab", "logprobs": {"tokens": ["a", "b"]}}]})
    assert text.num_logprobs == 2


def test_native_sglang_is_cumulative_unless_it_streams_increments() -> None:
    whole = facts({"text": "a b", "output_ids": [1, 2], "meta_info": {"completion_tokens": 2, "prompt_tokens": 5}})
    assert (whole.is_cumulative, whole.meta_tokens, whole.num_token_ids) == (True, 2, 2)
    part = facts({"text": " b", "output_ids": [2], "meta_info": {"completion_tokens": 2, "prompt_tokens": 5}})
    assert (part.is_cumulative, part.meta_tokens, part.num_token_ids) == (False, 2, 1)


def test_native_llamacpp_reports_no_cached_tokens(recorded: Any) -> None:
    last = event_facts(recorded.events("llama.cpp-2026-10/native_completion_stream.sse")[-1])
    assert last.usage == {"prompt_tokens": 5, "completion_tokens": 5}  # tokens_cached (9) is another figure
    assert (last.finish_reason, last.timings_tokens) == ("length", 5)


def test_not_quite_json_is_read_as_far_as_it_can() -> None:
    assert event_facts(b'{"choices":[{"text":"a","score":NaN}]}').answer == "a"
    assert event_facts(b'{"choices":[{"text":"\xff"}]}').answer == "�"
    assert event_facts(b'{"choices":[{"text":"\\ud83d"}]}').kind == trace.TEXT
    assert event_facts(b"[" * 100_000).kind == trace.OTHER
    assert event_facts(b" [DONE] ").kind == trace.DONE


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["choices", "usage", "error", "meta_info", "text", "content", "stop", "timings", "prompt_progress", "sglext"]
CHOICE_KEYS = ["delta", "message", "text", "finish_reason", "token_ids", "logprobs"]
DELTA_KEYS = ["content", "reasoning", "tool_calls", "function_call", "refusal"]


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    assert event_facts(data).kind in "trcopufkdex"


@given(
    st.dictionaries(st.sampled_from(KEYS), json_values),
    st.dictionaries(st.sampled_from(CHOICE_KEYS), json_values),
    st.dictionaries(st.sampled_from(DELTA_KEYS), json_values),
)
def test_no_shape_raises(payload: dict[str, Any], choice: dict[str, Any], content: dict[str, Any]) -> None:
    for value in (payload, {**payload, "choices": [choice]}, {**payload, "choices": [{**choice, "delta": content}]}):
        found = facts(value)
        assert found.kind in "trcopufkdex"
        assert (found.kind in trace.TOKEN_KINDS) == bool(found.text)


def test_an_event_costs_little(recorded: Any) -> None:
    data = recorded.events("vllm-0.32.0/completions_stream.sse")[3]
    best_s = min(_cpu_s(data) for _ in range(5))
    assert best_s / 2000 < 15e-6


def _cpu_s(data: bytes) -> float:
    began = time.process_time()
    for _ in range(2000):
        event_facts(data)
    return time.process_time() - began
