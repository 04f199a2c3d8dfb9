"""/metrics: the field's names, and figures that agree with the answers."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

NAMES = {
    "deepdraft:num_requests_running": "gauge",
    "deepdraft:num_requests_waiting": "gauge",
    "deepdraft:kv_cache_usage_perc": "gauge",
    "deepdraft:kv_pool_pages": "gauge",
    "deepdraft:prompt_tokens": "counter",
    "deepdraft:prompt_tokens_cached": "counter",
    "deepdraft:prefix_cache_queries": "counter",
    "deepdraft:prefix_cache_hits": "counter",
    "deepdraft:generation_tokens": "counter",
    "deepdraft:num_preemptions": "counter",
    "deepdraft:defragmented_pages": "counter",
    "deepdraft:defragment_seconds": "counter",
    "deepdraft:request_success": "counter",
    "deepdraft:request_aborted": "counter",
    "deepdraft:request_refused": "counter",
    "deepdraft:request_queue_time_seconds": "histogram",
    "deepdraft:time_to_first_token_seconds": "histogram",
    "deepdraft:inter_token_latency_seconds": "histogram",
    "deepdraft:request_time_per_output_token_seconds": "histogram",
    "deepdraft:e2e_request_latency_seconds": "histogram",
    "deepdraft:step_seconds": "histogram",
    "deepdraft:step_tokens": "counter",
    "process_resident_memory_bytes": "gauge",
}


def test_the_page_is_prometheus_text(random_server) -> None:
    reply = random_server.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family.type for family in text_string_to_metric_families(reply.body.decode())}
    assert {name: families.get(name) for name in NAMES} == NAMES


def test_one_request_moves_the_counters_by_what_its_answer_says(random_server) -> None:
    prompt = "forty-two tokens of prompt, most of them new"
    random_server.complete(prompt, max_tokens=1)

    def figures() -> dict[str, float]:
        families = text_string_to_metric_families(random_server.get("/metrics").body.decode())
        return {
            sample.name + "".join(sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }

    before = figures()
    usage = random_server.complete(prompt, max_tokens=9).json["usage"]
    after = figures()
    moved = {name: after[name] - before.get(name, 0.0) for name in after if after[name] != before.get(name)}
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached > 0
    assert moved["deepdraft:prompt_tokens_total"] == moved["deepdraft:prefix_cache_queries_total"] == len(prompt)
    assert moved["deepdraft:prompt_tokens_cached_total"] == moved["deepdraft:prefix_cache_hits_total"] == cached
    assert moved["deepdraft:generation_tokens_total"] == 9
    assert moved["deepdraft:request_success_totallength"] == 1
    assert moved["deepdraft:time_to_first_token_seconds_count"] == 1
    assert moved["deepdraft:inter_token_latency_seconds_count"] == 8
    assert moved["deepdraft:request_time_per_output_token_seconds_count"] == 1
    assert moved["deepdraft:e2e_request_latency_seconds_count"] == 1
    assert moved["deepdraft:step_seconds_countdecode"] == 8
    assert moved["deepdraft:step_tokens_totaldecode"] == 8
    assert moved["deepdraft:step_tokens_totalprefill"] == len(prompt) - cached
    spent_s = moved["deepdraft:step_seconds_sumdecode"] + moved["deepdraft:step_seconds_sumprefill"]
    assert spent_s <= moved["deepdraft:e2e_request_latency_seconds_sum"]


def test_pages_add_up_to_the_pool(random_server) -> None:
    random_server.complete("some prompt", max_tokens=4)
    states = [
        random_server.metric(f'deepdraft:kv_pool_pages{{state="{state}"}}') for state in ("free", "held", "cached")
    ]
    assert sum(states) == 128
    assert states[1] == 0
    assert random_server.metric("deepdraft:kv_cache_usage_perc") == 0
