import pytest
from trace_builder import recorded, trace

from deepdraft.metrics import server_decode_tok_s, server_prefill_s, server_prefill_tok_s, ttft_s

TOKEN = [(0.1, "t")]


def test_llamacpp_timings():
    one = recorded("llama.cpp-2026-10/spec_none.sse")
    assert server_prefill_s(one) == pytest.approx(7.016955)
    assert server_prefill_tok_s(one) == pytest.approx(139.94674)
    assert server_decode_tok_s(one) == pytest.approx(37.487281)
    assert ttft_s(one) == pytest.approx(server_prefill_s(one), rel=0.03)


def test_vllm_request_metrics():
    metrics = {"time_to_first_token_ms": 500.0, "generation_time_ms": 405.4, "mean_itl_ms": 10.0}
    one = trace(TOKEN, prompt=1000, cached=0, server_fields={"metrics": metrics})
    assert server_prefill_s(one) == pytest.approx(0.5)
    assert server_prefill_tok_s(one) == pytest.approx(2000)
    assert server_decode_tok_s(one) == pytest.approx(100)


def test_sglang_meta_info():
    meta = {"forward_entry_time": 100.0, "prefill_finished_time": 100.5, "decode_throughput": 36.5}
    one = trace(TOKEN, prompt=1000, cached=500, server_fields={"meta_info": meta})
    assert server_prefill_s(one) == pytest.approx(0.5)
    assert server_prefill_tok_s(one) == pytest.approx(1000)
    assert server_decode_tok_s(one) == pytest.approx(36.5)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"timings": None},
        {"timings": {"prompt_ms": 0, "predicted_per_second": float("inf")}},
        {"metrics": {"time_to_first_token_ms": "soon"}},
        {"meta_info": {"forward_entry_time": 5.0, "prefill_finished_time": 4.0}},
    ],
)
def test_what_the_engine_does_not_say_is_none(fields):
    one = trace(TOKEN, prompt=1000, server_fields=fields)
    assert (server_prefill_s(one), server_prefill_tok_s(one), server_decode_tok_s(one)) == (None, None, None)
