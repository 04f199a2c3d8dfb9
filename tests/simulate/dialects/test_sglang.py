from __future__ import annotations

import json
import threading
from itertools import pairwise
from typing import Any

import pytest

from deepdraft.simulate.spec import Confounds, Physics, Surface

QUICK = Physics(prefill_a_s=0.005, step_d_s=0.001)
DRAFTING = Physics(prefill_a_s=0.005, step_d_s=0.001, committed_len_pattern=(2, 4))


def metric(served: Any, name: str) -> float:
    lines = [line for line in served.get("/metrics").text.splitlines() if line.startswith(f"sglang:{name}{{")]
    assert lines, f"no metric {name}"
    return float(lines[0].rpartition(" ")[2])


# --- bytes as recorded


def test_chat_stream(serve: Any, recorded_events: Any, lacking: Any) -> None:
    ours = serve(dialect="sglang", physics=QUICK).chat().events
    recorded = recorded_events("sglang-0.5.23/chat_stream.sse")
    for position in (0, 1, -2, -1):  # role, token, finish, usage
        assert lacking(recorded[position], ours[position]) == []
    assert list(recorded[1]) == list(ours[1])
    assert recorded[0]["choices"] == ours[0]["choices"]
    assert recorded[-2]["choices"] == ours[-2]["choices"]


def test_completions_stream(serve: Any, recorded_events: Any, lacking: Any) -> None:
    ours = serve(dialect="sglang", physics=QUICK).complete().events
    recorded = recorded_events("sglang-0.5.23/completions_stream_excerpt.sse")
    for position in (0, -2, -1):
        assert lacking(recorded[position], ours[position]) == []
    assert "usage" in ours[0] and ours[0]["usage"] is None
    assert ours[-2]["choices"][0]["finish_reason"] == "length" and ours[-2]["choices"][0]["text"]


def test_whole_answers(serve: Any, sample: Any, lacking: Any) -> None:
    served = serve(dialect="sglang", physics=QUICK)
    recorded = json.loads(sample("sglang-0.5.23/completions_cache_report.json"))
    assert lacking(recorded, served.complete(stream=False).json) == []


def test_generate(serve: Any, sample: Any, recorded_events: Any, lacking: Any) -> None:
    served = serve(dialect="sglang", physics=QUICK)
    body = {"text": "one two", "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}
    recorded = json.loads(sample("sglang-0.5.23/generate.json"))
    unneeded = {".meta_info." + name for name in ("storage_prefetch_wait", "storage_staging_wait", "weight_versions")}
    unneeded |= {".meta_info.api_server_dispatch_finish_ts", ".meta_info.response_sent_to_client_ts"}
    assert set(lacking(recorded, served.send("POST", "/generate", body).json)) <= unneeded
    stream = served.send("POST", "/generate", {**body, "stream": True})
    recorded_stream = recorded_events("sglang-0.5.23/generate_stream.sse")
    for position in (0, -1):
        assert set(lacking(recorded_stream[position], stream.events[position])) <= unneeded
    texts = [event["text"] for event in stream.events]
    assert all(later.startswith(early) for early, later in pairwise(texts))
    assert [len(event["output_ids"]) for event in stream.events] == [1, 2, 3, 4]
    assert stream.events[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 4}
    assert stream.payloads[-1] == "[DONE]"


def test_generate_takes_ids_and_has_its_own_errors(serve: Any) -> None:
    served = serve(dialect="sglang", physics=Physics(max_context_len=50))
    body = {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 2}}
    assert served.send("POST", "/generate", body).json["meta_info"]["prompt_tokens"] == 3
    refused = served.send("POST", "/generate", {**body, "input_ids": [1] * 60})
    assert refused.status == 400 and set(refused.json) == {"error"} and "message" in refused.json["error"]


def test_models(serve: Any, sample: Any, lacking: Any) -> None:
    recorded = json.loads(sample("sglang-0.5.23/v1_models.json").partition(" [")[0])
    ours = serve(dialect="sglang").get("/v1/models").json
    assert lacking(recorded, ours) == []
    assert ours["data"][0]["owned_by"] == "sglang"


def test_metrics_have_the_recorded_names_and_labels(serve: Any, sample: Any) -> None:
    served = serve(dialect="sglang", physics=QUICK, confounds=Confounds(prefix_cache=True))
    for _ in range(2):
        served.complete("one two three four")

    def names(text: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for line in text.splitlines():
            if line.startswith("sglang:"):
                name, _, rest = line.partition("{")
                found[name] = {pair.partition("=")[0] for pair in rest.partition("}")[0].split(",")}
        return found

    recorded, ours = names(sample("sglang-0.5.23/metrics_excerpt.txt")), names(served.get("/metrics").text)
    assert recorded.items() <= ours.items()


# --- server info, pool, limits


def test_server_info(serve: Any) -> None:
    physics = Physics(max_context_len=200_000, kv_pool_tokens=101_134, committed_len_probs=(0.5, 0.3, 0.2))
    served = serve(dialect="sglang", physics=physics)
    facts = served.get("/server_info").json
    assert facts == {**served.get("/get_server_info").json, "internal_states": facts["internal_states"]}
    assert facts["max_total_num_tokens"] == 101_134
    assert facts["max_req_input_len"] == 101_134 - 6
    assert facts["context_length"] == 200_000
    assert facts["version"] == "0.5.23"
    assert facts["speculative_num_draft_tokens"] == 3
    assert "avg_spec_accept_length" not in facts["internal_states"][0]
    assert served.get("/model_info").json["served_model_name"] == "sim"
    assert served.get("/v1/models").json["data"][0]["max_model_len"] == 200_000


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "words"),
    [
        (210, 5, "is longer than the model's context length (200 tokens)"),
        (190, 20, "Requested token count exceeds the model's maximum context length of 200 tokens"),
        (120, 5, "Input length (120 tokens) exceeds the maximum allowed length (94 tokens)"),
    ],
)
def test_limits_in_its_own_words(serve: Any, num_prompt: int, max_tokens: int, words: str) -> None:
    served = serve(dialect="sglang", physics=Physics(max_context_len=200, kv_pool_tokens=100))
    refused = served.complete(" a" * num_prompt, max_tokens=max_tokens)
    assert refused.status == 400
    assert refused.json["object"] == "error" and words in refused.json["message"]
    assert refused.json["code"] == 400 and refused.json["type"] == "BadRequestError"


def test_an_answer_that_reaches_the_end_of_the_pool_ends_there(serve: Any) -> None:
    served = serve(dialect="sglang", physics=Physics(prefill_a_s=0.001, step_d_s=0.0005, kv_pool_tokens=100))
    answered = served.complete(" a" * 94, max_tokens=50)
    assert answered.finish_reasons == ["length"]
    assert answered.usages[0]["completion_tokens"] == 6


# --- speculation


def test_figures_move_only_every_interval_and_are_flushed(serve: Any) -> None:
    served = serve(dialect="sglang", physics=DRAFTING)

    def shown() -> float | None:
        value = served.get("/server_info").json["internal_states"][0].get("avg_spec_accept_length")
        assert value is None or isinstance(value, float)
        return value

    served.complete(max_tokens=1 + 30, ignore_eos=True)  # 10 steps
    assert shown() is None and metric(served, "spec_accept_length") == 0
    served.complete(max_tokens=1 + 120, ignore_eos=True)  # 50 steps in all
    assert shown() == 3 and metric(served, "spec_accept_length") == 3
    assert metric(served, "spec_verify_calls_total") == 50
    served.complete(max_tokens=1 + 2, ignore_eos=True)
    assert shown() == 3
    assert served.get("/flush_cache").status == 200
    assert shown() is None and metric(served, "spec_accept_length") == 0
    assert metric(served, "spec_verify_calls_total") == 51


def test_the_interval_can_be_set(serve: Any) -> None:
    served = serve(dialect="sglang", physics=DRAFTING, surface=Surface(decode_log_interval=1))
    served.complete(max_tokens=1 + 6, ignore_eos=True)
    assert metric(served, "spec_accept_length") == 3
    assert metric(served, "spec_accept_rate") == pytest.approx(4 / 6)


def test_per_request_details(serve: Any) -> None:
    served = serve(dialect="sglang", physics=DRAFTING)
    answered = served.chat(max_tokens=1 + 12, return_spec_tokens_details=True, return_cached_tokens_details=True)
    *_, extension, usage = answered.events
    assert usage["usage"] and extension["choices"] == []
    details = extension["sglext"]["spec_tokens_details"]
    assert details["spec_correct_drafts_histogram"] == [0, 2, 0, 2]
    assert details["spec_verify_ct"] == 4
    assert details["spec_num_correct_drafts"] == 8 and details["spec_num_proposed_drafts"] == 12
    assert extension["sglext"]["cached_tokens_details"] == {"device": 0, "host": 0}
    # the prefill's token is counted in: 13 / 4, not 12 / 4
    assert details["spec_accept_length"] == 13 / 4
    (truth,) = served.truths()
    assert [step.accepted_len for step in truth.steps] == [1, 3, 1, 3]
    assert "sglext" not in served.chat().text


# --- cache


def test_cached_tokens_only_with_the_report(serve: Any) -> None:
    for report, shown in (("dialect", None), ("usage", {"cached_tokens": 3})):
        confounds = Confounds(prefix_cache=True, cached_tokens_report=report)  # type: ignore[arg-type]
        served = serve(dialect="sglang", physics=QUICK, confounds=confounds)
        for _ in range(2):
            answered = served.complete("one two three four")
        assert answered.usages[-1]["prompt_tokens_details"] == shown
        assert metric(served, "cached_tokens_total") == 3
        body = {"text": "one two three four", "sampling_params": {"max_new_tokens": 2}}
        assert served.send("POST", "/generate", body).json["meta_info"]["cached_tokens"] == 3


def test_salt_and_flush_make_cold(serve: Any) -> None:
    served = serve(dialect="sglang", physics=QUICK, confounds=Confounds(prefix_cache=True))
    served.complete("one two three four")
    served.complete("one two three four", cache_salt="x")
    served.complete("one two three four", extra_key="y")
    served.complete("one two three four")
    assert served.send("POST", "/flush_cache").status == 200
    served.complete("one two three four")
    assert [truth.cached_len for truth in served.truths()] == [0, 0, 0, 3, 0]


def test_flush_is_refused_while_busy(serve: Any, sample: Any) -> None:
    served = serve(
        dialect="sglang",
        physics=Physics(prefill_a_s=0.4, step_d_s=0.001),
        confounds=Confounds(prefix_cache=True),
    )
    request = threading.Thread(target=served.complete, args=("one two three",))
    request.start()
    while not served.server._engine.running:
        pass
    refused = served.get("/flush_cache")
    assert refused.status == 400 and "not be performed" in refused.text
    waited = served.get("/flush_cache?timeout=5")
    assert waited.status == 200
    assert waited.text == sample("sglang-0.5.23/flush_cache.txt").partition(" [200]")[0]
    request.join()
    served.complete("one two three")
    assert served.truths()[-1].cached_len == 0


@pytest.mark.parametrize(("flush", "status", "cached"), [("refused", 400, 2), ("ignored", 200, 2), ("works", 200, 0)])
def test_flush_switch(serve: Any, flush: str, status: int, cached: int) -> None:
    confounds = Confounds(prefix_cache=True, flush=flush)  # type: ignore[arg-type]
    served = serve(dialect="sglang", physics=QUICK, confounds=confounds)
    served.complete("one two three")
    assert served.get("/flush_cache").status == status
    served.complete("one two three")
    assert served.truths()[-1].cached_len == cached


def test_the_flush_wants_the_admin_key(serve: Any) -> None:
    served = serve(dialect="sglang", surface=Surface(api_key="user", admin_key="admin"))
    assert served.get("/flush_cache", headers={"Authorization": "Bearer user"}).status == 401
    assert served.get("/flush_cache", headers={"Authorization": "Bearer admin"}).status == 200
    assert served.get("/metrics").status == 200
    assert served.get("/server_info").json == {"error": "Unauthorized"}


def test_tokenize_counts_as_the_prompt_is_counted(serve: Any) -> None:
    served = serve(dialect="sglang", physics=QUICK)
    text = "An internationalisation, quickly"
    answer = served.send("POST", "/tokenize", {"model": "sim", "prompt": text}).json
    assert answer["count"] == len(answer["tokens"]) == served.complete(text).usages[0]["prompt_tokens"] == 6
    assert served.complete(answer["tokens"]).usages[0]["prompt_tokens"] == 6


def test_metrics_can_be_off(serve: Any) -> None:
    assert serve(dialect="sglang", surface=Surface(metrics=False)).get("/metrics").status == 404
