from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from deepdraft.simulate.spec import Confounds, Physics, Surface

QUICK = Physics(prefill_a_s=0.005, step_d_s=0.001)
DRAFTING = Physics(prefill_a_s=0.005, step_d_s=0.001, committed_len_pattern=(2, 4))


def metric(served: Any, name: str) -> float:
    lines = [line for line in served.get("/metrics").text.splitlines() if line.startswith(f"llamacpp:{name} ")]
    assert lines, f"no metric {name}"
    return float(lines[0].rpartition(" ")[2])


# --- bytes as recorded


def test_chat_stream(serve: Any, recorded_events: Any, lacking: Any) -> None:
    ours = serve(dialect="llamacpp", physics=QUICK).chat().events
    recorded = recorded_events("llama.cpp-2026-10/chat_stream.sse")
    for position in (0, 1, -2, -1):  # role, token, finish, usage
        assert lacking(recorded[position], ours[position]) == []
        assert list(recorded[position]) == list(ours[position])
    assert recorded[0]["choices"] == ours[0]["choices"]
    assert "timings" not in ours[-2]


def test_chat_stream_without_usage_has_timings_in_its_finish(serve: Any, recorded_events: Any, lacking: Any) -> None:
    ours = serve(dialect="llamacpp", physics=QUICK).chat(stream_options={}).events
    recorded = recorded_events("llama.cpp-2026-10/chat_stream_no_usage_option.sse")
    assert lacking(recorded[-1], ours[-1]) == []
    assert ours[-1]["choices"][0]["finish_reason"] == "length" and "usage" not in ours[-1]


def test_completions_stream_with_progress_and_timings(serve: Any, recorded_events: Any, lacking: Any) -> None:
    served = serve(dialect="llamacpp", physics=QUICK)
    answered = served.complete(max_tokens=6, return_progress=True, timings_per_token=True, stream_options={})
    recorded = recorded_events("llama.cpp-2026-10/completions_stream_progress_timings.sse")
    assert len(answered.events) == len(recorded)
    for recorded_event, event in zip(recorded, answered.events, strict=True):
        assert lacking(recorded_event, event) == []
    assert answered.events[-1]["usage"]["completion_tokens"] == 6
    assert answered.payloads[-1] == "[DONE]"


def test_native_stream(serve: Any, recorded_events: Any, lacking: Any) -> None:
    served = serve(dialect="llamacpp", physics=QUICK)
    body = {"prompt": "one two three", "n_predict": 5, "stream": True}
    answered = served.send("POST", "/completion", body)
    recorded = recorded_events("llama.cpp-2026-10/native_completion_stream.sse")
    assert lacking(recorded[0], answered.events[0]) == []
    absent = lacking(recorded[-1], answered.events[-1])
    assert all(path.startswith(".generation_settings.") for path in absent)
    assert "[DONE]" not in answered.text
    assert [event["tokens_predicted"] for event in answered.events] == [1, 2, 3, 4, 5, 5]
    whole = served.send("POST", "/completion", {**body, "stream": False}).json
    assert whole["stop"] and whole["tokens_predicted"] == 5 and whole["content"].count(" ") == 5


def test_whole_answers(serve: Any, sample: Any, lacking: Any) -> None:
    served = serve(dialect="llamacpp", physics=QUICK)
    recorded = json.loads(sample("llama.cpp-2026-10/chat_nonstream_cached.json"))
    assert lacking(recorded, served.chat(stream=False).json) == []


def test_props_models_and_slots(serve: Any, sample: Any, lacking: Any) -> None:
    served = serve(dialect="llamacpp", physics=Physics(prefill_a_s=0.4, max_running=2, max_context_len=4096))
    recorded = json.loads(sample("llama.cpp-2026-10/models.json"))
    assert set(lacking(recorded, served.get("/v1/models").json)) <= {
        ".models[0].details.parameter_size",
        ".models[0].details.quantization_level",
    }
    absent = lacking(json.loads(sample("llama.cpp-2026-10/props.json")), served.get("/props").json)
    known = {".media_marker", ".ui_settings", ".chat_template_caps", ".cors_proxy_enabled"}
    assert all(path in known or ".params." in path for path in absent)
    assert served.get("/props").json["default_generation_settings"]["n_ctx"] == 4096
    idle = served.get("/slots").json
    assert len(idle) == 2 and not any(slot["is_processing"] for slot in idle)
    request = threading.Thread(target=served.complete, args=("one two three",))
    request.start()
    while not served.server._engine.running:
        pass
    busy = served.get("/slots").json[0]
    request.join()
    recorded = json.loads(sample("llama.cpp-2026-10/slots_busy_decode.json"))[0]
    assert all(path.startswith(".params.") for path in lacking(recorded, busy))
    assert busy["is_processing"] and busy["n_prompt_tokens"] == 3 and busy["next_token"][0]["n_decoded"] == 0


def test_metrics_have_the_recorded_names(serve: Any, sample: Any) -> None:
    served = serve(dialect="llamacpp", physics=DRAFTING)
    served.complete(max_tokens=1 + 12)

    def names(text: str) -> set[str]:
        return {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")}

    assert names(sample("llama.cpp-2026-10/metrics_spec_selfdraft.txt")) == names(served.get("/metrics").text)
    assert metric(served, "tokens_predicted_total") == 13
    assert metric(served, "spec_decode_num_accepted_tokens_total") == 8
    assert metric(served, "spec_decode_num_drafts_total") == 4


def test_too_long(serve: Any, sample: Any, lacking: Any) -> None:
    served = serve(dialect="llamacpp", physics=Physics(max_context_len=4096))
    refused = served.complete(" a" * 5404)
    recorded = json.loads(sample("llama.cpp-2026-10/error_context_exceeded.json").partition(" [")[0])
    assert refused.status == 400 and refused.json == recorded


# --- timings


def test_timings_are_the_truth(serve: Any) -> None:
    physics = Physics(prefill_a_s=0.02, prefill_b_s=1e-4, step_d_s=0.002, committed_len_pattern=(2, 4))
    served = serve(dialect="llamacpp", physics=physics, confounds=Confounds(prefix_cache=True))
    for _ in range(2):
        answered = served.chat(" a" * 100, max_tokens=1 + 12)
    timings = answered.events[-1]["timings"]
    truth = served.truths()[-1]
    assert timings["cache_n"] == truth.cached_len == 99
    assert timings["prompt_n"] == 1
    assert timings["prompt_ms"] == pytest.approx(20.1)
    assert timings["predicted_n"] == 13
    assert timings["predicted_ms"] == pytest.approx(8.0)
    assert timings["predicted_per_second"] == pytest.approx(12 / 0.008)
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (12, 8)
    assert answered.usages[-1]["prompt_tokens_details"]["cached_tokens"] == 99


def test_no_drafts_without_a_drafter(serve: Any) -> None:
    assert "draft_n" not in serve(dialect="llamacpp", physics=QUICK).chat().events[-1]["timings"]


# --- cache


def test_cache_prompt_false_and_erase_make_cold(serve: Any) -> None:
    served = serve(dialect="llamacpp", physics=QUICK, confounds=Confounds(prefix_cache=True))
    served.chat("one two three four")
    served.chat("one two three four", cache_prompt=False)
    served.chat("one two three four")
    assert served.send("POST", "/slots/0?action=erase").json["n_erased"] > 0
    served.chat("one two three four")
    assert [truth.cached_len for truth in served.truths()] == [0, 0, 3, 0]
    assert metric(served, "prompt_tokens_cached_total") == 3
    assert metric(served, "prompt_tokens_total") == 13


def test_tokenize_and_template(serve: Any) -> None:
    served = serve(dialect="llamacpp", physics=QUICK, confounds=Confounds(template_len=7))
    messages = [{"role": "user", "content": "one two three"}]
    prompt = served.send("POST", "/apply-template", {"messages": messages}).json["prompt"]
    tokens = served.send("POST", "/tokenize", {"content": prompt}).json["tokens"]
    assert len(tokens) == 10 == served.chat("one two three").usages[-1]["prompt_tokens"]
    assert served.send("POST", "/detokenize", {"tokens": tokens}).json["content"] == prompt
    mixed = served.send("POST", "/completion", {"prompt": [*tokens, " and more"], "n_predict": 1}).json
    assert mixed["tokens_evaluated"] == 12


def test_endless_requests_end_by_themselves(serve: Any) -> None:
    served = serve(dialect="llamacpp", physics=Physics(prefill_a_s=0.001, step_d_s=0.0001, max_context_len=100))
    answered = served.complete(" a" * 60, max_tokens=None)
    assert answered.usages[-1]["completion_tokens"] == 40 and answered.finish_reasons == ["length"]


def test_slots_can_be_off(serve: Any) -> None:
    served = serve(dialect="llamacpp", surface=Surface(slots=False, metrics=False))
    for path in ("/slots", "/metrics"):
        missing = served.get(path)
        assert missing.status == 404 and missing.json["error"]["type"] == "not_found_error"
