"""aiperf, on files it wrote against a server of known truth (TTFT 20 ms + 20 us a token, 1.5 ms a token) with a
tokenizer that counts 73 tokens where the server made 24."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deepdraft.records import Run

FOLDER = Path(__file__).parents[1] / "samples" / "aiperf-0.13.0"
JSON, CSV, JSONL = (
    f"aiperf-0.13.0/{name}"
    for name in ("profile_export_aiperf.json", "profile_export_aiperf.csv", "profile_export.jsonl")
)


@pytest.mark.parametrize("file", [JSON, CSV, JSONL])
def test_the_servers_count_of_tokens_outweighs_the_clients(imported: Callable[[str], Run], file: str) -> None:
    (line,) = imported(file).reported
    assert line.decode_len == 24
    assert all(1.4e-3 < value < 2.2e-3 for value in line.figures["tpot_s"].values)  # its own figure: 0.5 ms
    assert "by the server" in (line.figures["tpot_s"].definition or "")
    assert 0.02 < line.figures["ttft_s"].values[0] < 0.1


def test_summary_and_csv_agree(imported: Callable[[str], Run]) -> None:
    (summary,), (page,) = imported(JSON).reported, imported(CSV).reported
    assert summary.figures["ttft_s"].values[0] == pytest.approx(page.figures["ttft_s"].values[0], abs=1e-5)
    assert summary.figures["ttft_s"].statistic == page.figures["ttft_s"].statistic == "median"
    assert summary.concurrency == 2
    assert page.concurrency == 1
    assert "how many requests ran at once is not said" in page.remarks


def test_the_wrong_count_is_said_where_it_stays(imported: Callable[[str], Run]) -> None:
    (line,) = imported(JSON).reported
    assert "the server 24" in (line.figures["output_tok_s"].doubt or "")


def test_records_are_one_value_a_request(imported: Callable[[str], Run]) -> None:
    (line,) = imported(JSONL).reported
    records = [json.loads(text) for text in (FOLDER / "profile_export.jsonl").read_text().splitlines()]
    values = [record["metrics"]["time_to_first_token"]["value"] / 1e3 for record in records]
    assert line.figures["ttft_s"].values == pytest.approx(values)
    assert line.concurrency == 2  # at the peak, from when each started and ended


def test_failed_and_warmup_records_take_no_part(from_text: Callable[[str], Run]) -> None:
    records = [json.loads(text) for text in (FOLDER / "profile_export.jsonl").read_text().splitlines()]
    records[0]["error"] = {"type": "TimeoutError"}
    records[1]["metadata"]["benchmark_phase"] = "warmup"
    run = from_text("\n".join(json.dumps(record) for record in records))
    assert len(run.reported[0].figures["ttft_s"].values) == 2
    assert any("2 records failed" in note.message for note in run.notes if note.topic == "loss")


def test_without_the_servers_count_its_own_figure_is_in_doubt(from_text: Callable[[str], Run]) -> None:
    report = json.loads((FOLDER / "profile_export_aiperf.json").read_text())
    report.pop("usage_completion_tokens")
    (line,) = from_text(json.dumps(report)).reported
    assert line.figures["tpot_s"].values == (pytest.approx(report["inter_token_latency"]["p50"] / 1e3),)
    assert line.figures["tpot_s"].doubt


def test_unlike_answers_leave_the_time_a_token_out(from_text: Callable[[str], Run]) -> None:
    report = json.loads((FOLDER / "profile_export_aiperf.json").read_text())
    report["usage_completion_tokens"] |= {"min": 20, "max": 28}
    (line,) = from_text(json.dumps(report)).reported
    assert "tpot_s" not in line.figures


def test_acceptance_and_cached_tokens_of_the_server(from_text: Callable[[str], Run]) -> None:
    records = [json.loads(text) for text in (FOLDER / "profile_export.jsonl").read_text().splitlines()]
    for record in records:
        record["spec_decode_acceptance"] = {
            "mean_acceptance_length": 2.5,
            "acceptance_histogram": {"0": 1, "3": 1},
            "num_accepted_draft_tokens": 3,
        }
        record["metrics"]["usage_prompt_cache_read_tokens"] = {"value": 0, "unit": "tokens"}
    run = from_text("\n".join(json.dumps(record) for record in records))
    (line,) = run.reported
    assert line.acceptance is not None
    assert line.acceptance.accepted_len_histogram == (4, 0, 0, 4)
    assert line.is_cold is True
    assert run.header.capabilities.speculation == "yes"


def test_cut_short_runs_say_so(from_text: Callable[[str], Run]) -> None:
    report = json.loads((FOLDER / "profile_export_aiperf.json").read_text()) | {"was_cancelled": True}
    assert "the run was cut short" in from_text(json.dumps(report)).reported[0].remarks
