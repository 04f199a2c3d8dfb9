"""vllm bench serve, on files it wrote against a server of known truth: TTFT 20 ms + 20 us a token, 1.5 ms a token."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deepdraft.metrics import acceptance_len, points_of
from deepdraft.records import Run

SAMPLES = Path(__file__).parents[1] / "samples" / "vllm-0.32.0"
DETAILED, SUMMARY = "vllm-0.32.0/bench_serve_detailed.json", "vllm-0.32.0/bench_serve_summary.json"


def test_arrays_become_one_value_a_request(imported: Callable[[str], Run]) -> None:
    (line,) = imported(DETAILED).reported
    truth = json.loads((SAMPLES / "bench_serve_detailed.json").read_text())
    assert line.figures["ttft_s"].values == tuple(truth["ttfts"])
    assert line.context_len == sorted(truth["input_lens"])[1]
    assert (line.concurrency, line.decode_len) == (1, 24)
    assert line.figures["tpot_s"].values == pytest.approx([sum(gaps) / 23 for gaps in truth["itls"]])
    assert line.figures["tpot_s"].statistic is None
    assert all(0.02 + 2e-5 * line.context_len < value < 0.2 for value in line.figures["ttft_s"].values)
    assert all(1.4e-3 < value < 2.2e-3 for value in line.figures["tpot_s"].values)


def test_bundled_tokens_are_seen_in_the_arrays(
    imported: Callable[[str], Run], from_text: Callable[[str], Run]
) -> None:
    (line,) = imported(DETAILED).reported
    assert "first chunk" in (line.figures["tpot_s"].doubt or "")
    result = json.loads((SAMPLES / "bench_serve_detailed.json").read_text())
    result["itls"] = [[0.0015] * 23 for _ in result["itls"]]  # as many chunks as tokens
    (line,) = from_text(json.dumps(result)).reported
    assert line.figures["tpot_s"].doubt is None
    assert line.figures["tpot_s"].values == pytest.approx([0.0015] * 4)


def test_a_summary_says_which_statistic_it_is(imported: Callable[[str], Run]) -> None:
    run = imported(SUMMARY)
    (line,) = run.reported
    truth = json.loads((SAMPLES / "bench_serve_summary.json").read_text())
    assert line.figures["ttft_s"].values == (pytest.approx(truth["median_ttft_ms"] / 1e3),)
    assert (line.figures["ttft_s"].statistic, line.figures["ttft_s"].num_samples) == ("median", 6)
    assert line.figures["tpot_s"].doubt
    assert "gap between chunks" in (line.figures["itl_s"].definition or "")
    assert line.concurrency == 2
    assert line.context_len == round(truth["total_input_tokens"] / 6)
    assert "mean_concurrency" not in line.figures  # "peak" 6 of 2: counted in one-second buckets
    assert any("one-second buckets" in trap for trap in run.header.source.traps)  # type: ignore[union-attr]


def test_acceptance_is_by_counters_and_its_depths_add_up(imported: Callable[[str], Run]) -> None:
    run = imported(DETAILED)
    (line,) = run.reported
    assert run.header.capabilities.speculation == "yes"
    assert line.acceptance is not None
    length = acceptance_len(line.acceptance)
    assert length is not None
    assert length.value == pytest.approx(line.figures["acceptance_len"].values[0])
    assert sum(line.acceptance.accepted_at_depth or ()) == line.acceptance.num_accepted_tokens


def test_unlimited_and_open_loop_runs_say_how_many_ran_at_once(from_text: Callable[[str], Run]) -> None:
    result = json.loads((SAMPLES / "bench_serve_summary.json").read_text()) | {"max_concurrency": None}
    (line,) = from_text(json.dumps(result)).reported
    assert line.concurrency == 6
    assert any("sent at once" in remark for remark in line.remarks)
    result |= {"request_rate": 2.0}
    run = from_text(json.dumps(result))
    assert run.header.spec.arrival == "poisson:2"
    assert run.reported[0].concurrency == round(sum(result["latencies"]) / result["duration"])


def test_failed_requests_take_no_part(from_text: Callable[[str], Run]) -> None:
    result = json.loads((SAMPLES / "bench_serve_detailed.json").read_text())
    result |= {"errors": ["", "boom", "", ""], "failed": 1, "completed": 3}
    result["ttfts"][1] = 0.0
    (line,) = from_text(json.dumps(result)).reported
    assert len(line.figures["ttft_s"].values) == 3
    assert "1 request failed and take no part" in line.remarks


def test_appended_results_are_one_point_each(from_text: Callable[[str], Run]) -> None:
    result = (SAMPLES / "bench_serve_summary.json").read_text().strip()
    run = from_text(result + "\n" + result)
    assert len(points_of(run)) == 2
