"""sglang bench_serving, on lines it wrote against a server of known truth: native route with details, then an OpenAI
route without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deepdraft.metrics import points_of
from deepdraft.records import Run
from deepdraft.report.doubt import point_doubts

FILE = "sglang-0.5.23/bench_serving.jsonl"
SAMPLE = Path(__file__).parents[1] / "samples" / FILE


def test_the_native_line_has_requests_and_cached_tokens(imported: Callable[[str], Run]) -> None:
    native = imported(FILE).reported[0]
    truth = json.loads(SAMPLE.read_text().splitlines()[0])
    assert native.figures["ttft_s"].values == tuple(truth["ttfts"])
    assert all(1.4e-3 < value < 2.2e-3 for value in native.figures["tpot_s"].values)
    assert native.is_cold is True
    assert native.concurrency == 1


def test_prompt_tokens_of_the_client_are_no_actual_length(imported: Callable[[str], Run]) -> None:
    for line in imported(FILE).reported:
        assert line.context_len is None
        assert line.asked_context_len


def test_openai_routes_put_the_time_a_token_in_doubt(imported: Callable[[str], Run]) -> None:
    native, openai = imported(FILE).reported
    assert "requested" in (openai.figures["tpot_s"].doubt or "")
    assert "requested" not in (native.figures["tpot_s"].doubt or "")
    assert openai.is_cold is None


def test_a_reported_zero_of_cached_tokens_is_not_believed_on_other_routes(from_text: Callable[[str], Run]) -> None:
    line = json.loads(SAMPLE.read_text().splitlines()[1])
    report = {"total_cached_tokens": 0}
    assert from_text(json.dumps(line | {"cache_report": report})).reported[0].is_cold is None
    hit = {"total_cached_tokens": line["total_input_tokens"] // 2}
    assert from_text(json.dumps(line | {"cache_report": hit})).reported[0].is_cold is False


def test_acceptance_is_marked_as_a_lifetime_average(imported: Callable[[str], Run]) -> None:
    run = imported(FILE)
    for point in points_of(run):
        assert point.reported is not None
        assert point.reported.acceptance is not None
        assert point.reported.acceptance.is_lifetime_average
        assert point_doubts(run, point).mark("acceptance_len") == "?"


def test_no_acceptance_without_a_drafter(from_text: Callable[[str], Run]) -> None:
    line = json.loads(SAMPLE.read_text().splitlines()[0])
    for nothing in (None, 0, -1):
        (point,) = from_text(json.dumps(line | {"accept_length": nothing})).reported
        assert point.acceptance is None
        assert "acceptance_len" not in point.figures


def test_the_embedded_server_info_becomes_capabilities(imported: Callable[[str], Run]) -> None:
    server = imported(FILE).header.capabilities
    assert (server.engine, server.version, server.model) == ("sglang", "0.5.23", "sim")
    assert server.speculation == "yes"
    assert server.settings["mem_fraction_static"] == 0.93


def test_secrets_of_the_server_stay_behind(from_text: Callable[[str], Run]) -> None:
    line = json.loads(SAMPLE.read_text().splitlines()[0])
    line["server_info"] |= {"api_key": "sk-verysecret123", "launch_command": "x --api-key sk-verysecret123"}
    run = from_text(json.dumps(line))
    assert "verysecret" not in str(run.header)


def test_a_summary_line_gives_medians(imported: Callable[[str], Run]) -> None:
    openai = imported(FILE).reported[1]
    truth = json.loads(SAMPLE.read_text().splitlines()[1])
    assert openai.figures["ttft_s"].values == (pytest.approx(truth["median_ttft_ms"] / 1e3),)
    assert openai.figures["ttft_s"].statistic == "median"
    assert openai.figures["total_tok_s"].values == (truth["total_throughput"],)
