from __future__ import annotations

import json
from typing import Any

import pytest

from deepdraft.simulate.spec import Confounds, Fault, Physics, Surface

QUICK = Physics(prefill_a_s=0.005, step_d_s=0.001, page_size=16)
DRAFTING = Physics(prefill_a_s=0.005, step_d_s=0.001, committed_len_pattern=(2, 4))


def metric(served: Any, name: str) -> float:
    lines = [line for line in served.get("/metrics").text.splitlines() if line.startswith(f"vllm:{name}{{")]
    assert lines, f"no metric {name}"
    return float(lines[0].rpartition(" ")[2])


# --- bytes as recorded


def test_chat_stream(serve: Any, recorded_events: Any, lacking: Any) -> None:
    served = serve(dialect="vllm", physics=QUICK, confounds=Confounds(eos_at=8))
    ours = served.chat(max_tokens=20).events
    recorded = recorded_events("vllm-0.32.0/chat_stream.sse")
    assert len(ours) == len(recorded)
    for recorded_event, event in zip(recorded, ours, strict=True):
        assert lacking(recorded_event, event) == []
        assert list(recorded_event) == list(event)
    assert recorded[0]["choices"] == ours[0]["choices"]
    # the end-of-sequence token is counted and has no text
    assert recorded[-2]["choices"] == ours[-2]["choices"]
    assert recorded[-1]["usage"]["completion_tokens"] == ours[-1]["usage"]["completion_tokens"] == 8


def test_completions_stream_with_speculation(serve: Any, recorded_events: Any, lacking: Any) -> None:
    served = serve(
        dialect="vllm",
        physics=DRAFTING,
        confounds=Confounds(prefix_cache=True, cached_tokens_report="usage"),
    )
    options = {"include_usage": True, "continuous_usage_stats": True}
    ours = served.complete("a b c d e", max_tokens=24, return_token_ids=True, stream_options=options).events
    recorded = recorded_events("vllm-0.32.0/completions_stream_specdecode.sse")
    for position in (0, 1, -2, -1):
        assert lacking(recorded[position], ours[position]) == []
    first = ours[0]["choices"][0]
    assert len(first["prompt_token_ids"]) == 5 and len(first["token_ids"]) == 1
    assert ours[1]["choices"][0]["prompt_token_ids"] is None
    assert recorded[-1]["usage"] == ours[-1]["usage"]


def test_whole_answers(serve: Any, sample: Any, lacking: Any) -> None:
    served = serve(dialect="vllm", physics=QUICK, surface=Surface(per_request_metrics=True))
    recorded = json.loads(sample("vllm-0.32.0/completions_nonstream_per_request_metrics.json"))
    unneeded = {".service_tier", ".kv_transfer_params", ".ec_transfer_params", ".metrics.speculative_decoding"}
    unneeded |= {".choices[0].prompt_logprobs", ".choices[0].routed_experts"}
    assert set(lacking(recorded, served.complete(stream=False).json)) <= unneeded
    recorded = json.loads(sample("vllm-0.32.0/chat_nonstream.json"))
    message = {f".choices[0].message.{name}" for name in ("refusal", "annotations", "audio", "function_call")}
    unneeded |= message | {".prompt_logprobs", ".prompt_token_ids", ".prompt_text"}
    unneeded |= {".choices[0].stop_reason"}
    assert set(lacking(recorded, served.chat(stream=False).json)) <= unneeded


def test_models_and_version(serve: Any, sample: Any, lacking: Any) -> None:
    served = serve(dialect="vllm")
    assert lacking(json.loads(sample("vllm-0.32.0/models.json")), served.get("/v1/models").json) == []
    assert served.get("/version").json == json.loads(sample("vllm-0.32.0/version.json"))


def test_metrics_have_the_recorded_names_and_labels(serve: Any, sample: Any) -> None:
    served = serve(dialect="vllm", physics=DRAFTING, confounds=Confounds(prefix_cache=True))
    served.complete()

    def names(text: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for line in text.splitlines():
            if line.startswith("vllm:") and "cache_config_info" not in line:
                name, _, rest = line.partition("{")
                found[name] = {pair.partition("=")[0] for pair in rest.partition("}")[0].split(",")}
        return found

    recorded, ours = names(sample("vllm-0.32.0/metrics_excerpt.txt")), names(served.get("/metrics").text)
    assert recorded.items() <= ours.items()


def test_error_in_stream(serve: Any, recorded_events: Any, lacking: Any) -> None:
    served = serve(dialect="vllm", physics=QUICK, faults=(Fault(kind="error_in_stream", after_tokens=0),))
    answered = served.complete()
    (recorded,) = recorded_events("vllm-0.32.0/stream_engine_died.sse")
    (ours,) = answered.events
    assert lacking(recorded, ours) == [] and answered.payloads[-1] == "[DONE]"
    assert ours["error"]["code"] == recorded["error"]["code"]


# --- per request and counters


def test_request_metrics_are_the_truth(serve: Any, recorded_events: Any, lacking: Any) -> None:
    surface = Surface(per_request_metrics=True, spec_decode_metrics="detailed")
    served = serve(dialect="vllm", physics=DRAFTING, surface=surface)
    last = served.complete(max_tokens=1 + 12).events[-1]
    recorded = recorded_events("vllm-0.32.0/completions_stream_per_request_metrics_end.sse")[-1]
    assert set(lacking(recorded, last)) <= {".usage.prompt_tokens_details"}
    (truth,) = served.truths()
    speculation = last["metrics"]["speculative_decoding"]
    assert speculation["per_step_accepted"] == [step.accepted_len for step in truth.steps] == [1, 3, 1, 3]
    assert speculation["per_step_drafted"] == [3, 3, 3, 3]
    assert speculation["mean_acceptance_length"] == 3.0
    assert speculation["acceptance_histogram"] == [0, 2, 0, 2]
    assert last["metrics"]["time_to_first_token_ms"] == pytest.approx(5.0)
    assert last["metrics"]["generation_time_ms"] == pytest.approx(4.0)


def test_summary_has_no_steps(serve: Any) -> None:
    surface = Surface(per_request_metrics=True, spec_decode_metrics="summary")
    last = serve(dialect="vllm", physics=DRAFTING, surface=surface).complete().events[-1]
    assert "per_step_accepted" not in last["metrics"]["speculative_decoding"]
    assert "metrics" not in serve(dialect="vllm", physics=DRAFTING).complete().events[-1]


def test_speculation_counters(serve: Any) -> None:
    served = serve(dialect="vllm", physics=DRAFTING)
    served.complete(max_tokens=1 + 12)
    assert metric(served, "spec_decode_num_drafts_total") == 4
    assert metric(served, "spec_decode_num_draft_tokens_total") == 12
    assert metric(served, "spec_decode_num_accepted_tokens_total") == 8
    text = served.get("/metrics").text
    by_position = [line for line in text.splitlines() if "per_pos_total{" in line]
    assert [float(line.rpartition(" ")[2]) for line in by_position] == [4, 2, 2]
    assert metric(served, "generation_tokens_total") == 13


def test_counters_may_count_past_the_end(serve: Any) -> None:
    served = serve(dialect="vllm", physics=DRAFTING, confounds=Confounds(accepted_past_end=True))
    answered = served.complete(max_tokens=1 + 3)
    assert answered.usages[-1]["completion_tokens"] == 4
    assert metric(served, "spec_decode_num_accepted_tokens_total") == 4
    (truth,) = served.truths()
    assert sum(step.committed_len for step in truth.steps) == 3


# --- cache


@pytest.mark.parametrize("report", ["dialect", "usage"])
def test_hits_are_whole_blocks(serve: Any, report: str) -> None:
    confounds = Confounds(prefix_cache=True, cached_tokens_report=report)  # type: ignore[arg-type]
    served = serve(dialect="vllm", physics=QUICK, confounds=confounds)
    for _ in range(2):
        answered = served.complete(" a" * 50)
    details = answered.usages[-1].get("prompt_tokens_details")
    assert details == ({"cached_tokens": 48} if report == "usage" else None)
    assert metric(served, "prefix_cache_hits_total") == 48
    assert metric(served, "prefix_cache_queries_total") == 100


def test_silent_reuse_shows_nowhere(serve: Any) -> None:
    confounds = Confounds(prefix_cache=True, cached_tokens_report="nothing")
    served = serve(dialect="vllm", physics=QUICK, confounds=confounds)
    for _ in range(2):
        answered = served.complete(" a" * 50)
    assert served.truths()[-1].cached_len == 48
    assert "cached" not in answered.text
    assert "prefix_cache_hits" not in served.get("/metrics").text


def test_salt_makes_cold(serve: Any) -> None:
    served = serve(dialect="vllm", physics=QUICK, confounds=Confounds(prefix_cache=True))
    for salt in ({}, {"cache_salt": "x"}, {}, {"cache_salt": "x"}):
        served.complete(" a" * 50, **salt)
    assert [truth.cached_len for truth in served.truths()] == [0, 0, 48, 48]
    assert served.complete("a", cache_salt="").status == 400


def test_reset_and_server_info_only_in_dev_mode(serve: Any) -> None:
    plain = serve(dialect="vllm", physics=QUICK)
    assert plain.send("POST", "/reset_prefix_cache").status == 404
    assert plain.get("/server_info").status == 404
    served = serve(
        dialect="vllm",
        physics=QUICK,
        confounds=Confounds(prefix_cache=True),
        surface=Surface(dev_mode=True, api_key="secret"),
    )
    served.headers = {"Authorization": "Bearer secret"}
    served.complete(" a" * 50)
    served.headers = {}  # not under /v1: no key
    assert served.send("POST", "/reset_prefix_cache").json == {"success": True}
    assert isinstance(served.get("/server_info").json["vllm_config"], str)
    assert isinstance(served.get("/server_info?config_format=json").json["vllm_config"], dict)
    served.headers = {"Authorization": "Bearer secret"}
    served.complete(" a" * 50)
    assert served.truths()[-1].cached_len == 0


# --- limits


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "words"),
    [
        (210, 5, "your prompt contains 210 input tokens"),
        (190, 20, "you requested 20 output tokens and your prompt contains 190 input tokens"),
        (120, 5, "The decoder prompt (length 120) is longer than the maximum model length of 100."),
    ],
)
def test_limits_in_its_own_words(serve: Any, num_prompt: int, max_tokens: int, words: str) -> None:
    served = serve(dialect="vllm", physics=Physics(max_context_len=200, kv_pool_tokens=100))
    refused = served.complete(" a" * num_prompt, max_tokens=max_tokens)
    assert refused.status == 400
    assert words in refused.json["error"]["message"]
    assert refused.json["error"]["code"] == 400


def test_the_pool_stands_in_the_cache_config(serve: Any) -> None:
    served = serve(dialect="vllm", physics=Physics(kv_pool_tokens=93_184, page_size=128))
    (line,) = [
        line for line in served.get("/metrics").text.splitlines() if line.startswith("vllm:cache_config_info{")
    ]
    for label in ('kv_cache_size_tokens="93184"', 'block_size="128"', 'num_gpu_blocks="728"'):
        assert label in line


def test_tokenize(serve: Any) -> None:
    served = serve(dialect="vllm", physics=QUICK, confounds=Confounds(template_len=7))
    text = served.send("POST", "/tokenize", {"prompt": "one two"}).json
    assert text["count"] == 2 == len(text["tokens"])
    messages = [{"role": "user", "content": "one two"}]
    assert served.send("POST", "/tokenize", {"messages": messages}).json["count"] == 9
    assert served.chat("one two").usages[-1]["prompt_tokens"] == 9
    assert served.send("POST", "/tokenize", {"prompt": 5}).status == 400
