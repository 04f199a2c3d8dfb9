"""llama-benchy, on a file it wrote against a server of known truth: TTFT 20 ms + 20 us a token, 1.5 ms a token."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from deepdraft.records import Run

FILE = "llama-benchy-0.4.0/depth_concurrency.json"
SAMPLE = Path(__file__).parents[1] / "samples" / FILE


def test_points_at_depth_and_concurrency(imported: Callable[[str], Run]) -> None:
    run = imported(FILE)
    assert [(line.asked_context_len, line.concurrency) for line in run.reported] == [
        (512, 1),
        (512, 2),
        (1536, 1),
        (1536, 2),
    ]
    for line in run.reported:
        assert line.context_len is None  # the server's count is not written down
        assert line.decode_len == 24
        assert len(line.figures["ttft_s"].values) == 2 * line.concurrency
        assert min(line.figures["ttft_s"].values) > 0.02 + 2e-5 * 0.8 * (line.asked_context_len or 0)
        assert all(450 < value < 720 for value in line.figures["decode_tok_s"].values)  # truth: 667


def test_batch_throughput_is_not_a_requests(imported: Callable[[str], Run]) -> None:
    single, pair = imported(FILE).reported[:2]
    assert "output_tok_s" not in single.figures
    assert pair.figures["output_tok_s"].values[0] > 1.3 * pair.figures["decode_tok_s"].values[0]


def test_a_role_chunk_leaves_the_prefill_rate_out(from_text: Callable[[str], Run]) -> None:
    report = json.loads(SAMPLE.read_text())
    report["benchmarks"] = report["benchmarks"][:1]
    benchmark = report["benchmarks"][0]
    benchmark["ttfr"]["values"] = list(benchmark["e2e_ttft"]["values"])
    (line,) = from_text(json.dumps(report)).reported
    assert "prefill_tok_s" in line.figures
    benchmark["ttfr"]["values"] = [8.0 for _ in benchmark["ttfr"]["values"]]
    (line,) = from_text(json.dumps(report)).reported
    assert "prefill_tok_s" not in line.figures
    assert any("role" in remark for remark in line.remarks)


def test_prefix_caching_on_purpose_is_a_hit(from_text: Callable[[str], Run]) -> None:
    report = json.loads(SAMPLE.read_text())
    deep = report["benchmarks"][2]
    load = json.loads(json.dumps(deep)) | {"is_context_prefill_phase": True}
    report |= {"prefix_caching_enabled": True, "benchmarks": [load, deep]}
    loading, hit = from_text(json.dumps(report)).reported
    assert (loading.asked_context_len, loading.is_cold) == (1024, None)
    assert (hit.asked_context_len, hit.is_cold) == (1536, False)
    assert "prefill_tok_s" not in hit.figures


def test_a_benchmark_whose_requests_failed_is_named(from_text: Callable[[str], Run]) -> None:
    report = json.loads(SAMPLE.read_text())
    for name in ("e2e_ttft", "tg_req_throughput", "pp_req_throughput", "ttfr"):
        report["benchmarks"][0][name] = None
    run = from_text(json.dumps(report))
    assert len(run.reported) == 3
    assert any("benchmark 1" in note.message for note in run.notes if note.topic == "loss")


def test_the_version_is_kept(imported: Callable[[str], Run]) -> None:
    source = imported(FILE).header.source
    assert source is not None
    assert source.version == "0.4.0"
    assert source.tool == "llama-benchy"
