"""guidellm, on a report it wrote against a server of known truth: TTFT 20 ms + 20 us a token, 1.5 ms a token."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deepdraft.errors import ResultsError
from deepdraft.records import Run

FILE = "guidellm-0.8.1/benchmarks.json"
SAMPLE = Path(__file__).parents[1] / "samples" / FILE


def test_requests_become_values(imported: Callable[[str], Run]) -> None:
    run = imported(FILE)
    (line,) = run.reported
    requests = json.loads(SAMPLE.read_text())["benchmarks"][0]["requests"]["successful"]
    assert line.figures["ttft_s"].values == pytest.approx([one["time_to_first_token_ms"] / 1e3 for one in requests])
    assert all(1.1e-3 < value < 2.2e-3 for value in line.figures["tpot_s"].values)  # a bundled first chunk flatters
    assert (line.concurrency, line.decode_len) == (2, 24)
    assert line.context_len in [one["prompt_tokens"] for one in requests]
    assert line.is_cold is None  # the server told no cached tokens
    assert run.header.capabilities.model == "sim"
    assert any("generation delay" in remark for remark in line.remarks)  # its own warning is passed on


def test_its_tpot_is_not_ours(imported: Callable[[str], Run]) -> None:
    run = imported(FILE)
    theirs = json.loads(SAMPLE.read_text())["benchmarks"][0]["metrics"]["time_per_output_token_ms"]["successful"]
    assert theirs["median"] / 1e3 > 1.5 * max(run.reported[0].figures["tpot_s"].values)
    assert any("holds the TTFT" in trap for trap in run.header.source.traps)  # type: ignore[union-attr]


def test_bundled_chunks_are_in_doubt(imported: Callable[[str], Run], from_text: Callable[[str], Run]) -> None:
    assert "first one" in (imported(FILE).reported[0].figures["tpot_s"].doubt or "")
    report = json.loads(SAMPLE.read_text())
    for request in report["benchmarks"][0]["requests"]["successful"]:
        request["output_tokens_per_iteration"] = 1.0
    assert from_text(json.dumps(report)).reported[0].figures["tpot_s"].doubt is None


def test_a_report_without_requests_gives_medians(from_text: Callable[[str], Run]) -> None:
    report = json.loads(SAMPLE.read_text())
    report["benchmarks"][0]["requests"]["successful"] = []
    (line,) = from_text(json.dumps(report)).reported
    truth = report["benchmarks"][0]["metrics"]["time_to_first_token_ms"]["successful"]["median"]
    assert line.figures["ttft_s"].values == (pytest.approx(truth / 1e3),)
    assert (line.figures["ttft_s"].statistic, line.figures["ttft_s"].num_samples) == ("median", 4)


def test_cached_tokens_and_acceptance_of_the_server_are_used(from_text: Callable[[str], Run]) -> None:
    report = json.loads(SAMPLE.read_text())
    for request in report["benchmarks"][0]["requests"]["successful"]:
        request["input_metrics"]["cached_tokens"] = 500
        request["response_metrics"] = {
            "speculative_decoding": {
                "mean_acceptance_length": 2.5,
                "num_spec_steps": 10,
                "num_accepted_draft_tokens": 15,
                "num_draft_tokens": 30,
            }
        }
    (line,) = from_text(json.dumps(report)).reported
    assert line.is_cold is False
    assert line.figures["acceptance_len"].values == (2.5,) * 4
    assert line.acceptance is not None
    assert (line.acceptance.num_steps, line.acceptance.num_accepted_tokens) == (40, 60)


@pytest.mark.parametrize(
    ("strategy", "concurrency", "arrival"),
    [
        ({"type_": "synchronous"}, 1, "closed"),
        ({"type_": "concurrent", "streams": 8}, 8, "closed"),
        ({"type_": "poisson", "rate": 4.0}, 2, "poisson:4"),
        ({"type_": "throughput"}, 2, "closed"),
    ],
)
def test_strategies(
    from_text: Callable[[str], Run], strategy: dict[str, object], concurrency: int, arrival: str
) -> None:
    report = json.loads(SAMPLE.read_text())
    report["benchmarks"][0]["config"]["strategy"] = strategy
    run = from_text(json.dumps(report))
    assert (run.reported[0].concurrency, run.header.spec.arrival) == (concurrency, arrival)


def test_an_older_schema_is_refused_with_what_to_do(from_text: Callable[[str], Run]) -> None:
    report = json.loads(SAMPLE.read_text())
    report["metadata"]["version"] = 1
    with pytest.raises(ResultsError, match="schema 1") as refused:
        from_text(json.dumps(report))
    assert "newer guidellm" in (refused.value.hint or "")
