"""aiperf's summaries: `profile_export_aiperf.json`, and the CSV brought to the same form."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from deepdraft.importers.aiperf_metric import BY_USAGE, ITL, ITL_DOUBT, answer_len, prompt_len, seconds
from deepdraft.importers.field import count, counted, entries, finite, known, number, one, part
from deepdraft.records import Reported, ReportedFigure

_CSV_TAGS = {
    "Time to First Token": "time_to_first_token",
    "Inter Token Latency": "inter_token_latency",
    "Request Latency": "request_latency",
    "Input Sequence Length": "input_sequence_length",
    "Output Sequence Length": "output_sequence_length",
    "Output Token Throughput": "output_token_throughput",
    "Decode Duration": "decode_duration",
    "Usage Prompt Tokens": "usage_prompt_tokens",
    "Usage Completion Tokens": "usage_completion_tokens",
    "Usage Prompt Cache Read Tokens": "usage_prompt_cache_read_tokens",
    "Request Count": "request_count",
    "Error Request Count": "error_request_count",
}


def summary_line(metrics: Mapping[str, Any], report: Mapping[str, Any]) -> Reported | None:
    """The point, of medians; None without a length or a figure. report: what the metrics came with, {} for a CSV."""
    length = prompt_len(metrics, "p50") or prompt_len(metrics, "avg")
    figures = {
        "ttft_s": _statistic(metrics, "time_to_first_token"),
        "tpot_s": _summary_tpot(metrics),
        "e2el_s": _statistic(metrics, "request_latency"),
        "output_tok_s": one(number(part(metrics, "output_token_throughput"), "avg"), None, doubt=_mismatch(metrics)),
    }
    kept = known(figures)
    if not length or not kept:
        return None
    num_failed = count(part(metrics, "error_request_count"), "avg", 1)
    num_at_once, remark = _concurrency(report)
    output_len = answer_len(metrics, "p50")
    cached = number(part(metrics, "usage_prompt_cache_read_tokens"), "avg")
    remarks = [remark] if remark else []
    if num_failed:
        remarks.append(f"{counted(num_failed, 'request')} failed and take no part")
    if report.get("was_cancelled") is True or report.get("is_complete") is False:
        remarks.append("the run was cut short")
    return Reported(
        context_len=round(length),
        concurrency=num_at_once,
        decode_len=round(output_len) if output_len else None,
        figures=kept,
        is_cold=None if cached is None else cached <= 0.01 * length,
        remarks=tuple(remarks),
    )


def _statistic(
    metrics: Mapping[str, Any], tag: str, *, definition: str | None = None, doubt: str | None = None
) -> ReportedFigure | None:
    """A time's median, else its mean."""
    metric = part(metrics, tag)
    statistic = "p50" if number(metric, "p50") else "avg"
    return one(
        seconds(metric, statistic),
        "median" if statistic == "p50" else "mean",
        num_samples=count(metric, "count", 1) or count(part(metrics, "request_count"), "avg", 1),
        definition=definition,
        doubt=doubt,
    )


def _summary_tpot(metrics: Mapping[str, Any]) -> ReportedFigure | None:
    """Its own figure; where the server counted other tokens than the client, the decode time by the server's count,
    which is exact only when all answers had as many, and nothing else."""
    mismatch = _mismatch(metrics)
    if mismatch is None:
        return _statistic(metrics, "inter_token_latency", definition=ITL, doubt=ITL_DOUBT)
    usage = part(metrics, "usage_completion_tokens")
    num_tokens, duration = count(usage, "min", 2), seconds(part(metrics, "decode_duration"), "p50")
    if num_tokens is None or num_tokens != count(usage, "max", 2) or duration is None:
        return None
    return one(duration / (num_tokens - 1), "median", definition=BY_USAGE, doubt=ITL_DOUBT)


def _mismatch(metrics: Mapping[str, Any]) -> str | None:
    """What is wrong with the client's count of tokens; None when it agrees with the server's, or nobody knows."""
    counted_len = number(part(metrics, "output_sequence_length"), "avg")
    usage = number(part(metrics, "usage_completion_tokens"), "avg")
    if not counted_len or not usage or abs(counted_len - usage) <= 0.02 * usage:
        return None
    return f"the client counted {counted_len:.4g} tokens an answer, the server {usage:.4g}"


def _concurrency(report: Mapping[str, Any]) -> tuple[int, str | None]:
    """As the configuration of the last profiling phase has it."""
    config = part(report, "input_config")
    phases = [*entries(config, "phases"), part(config, "profiling"), part(config, "phases")]
    found = [count(phase, "concurrency", 1) for phase in phases if isinstance(phase, dict)]
    stated = [value for value in found if value is not None]
    if stated:
        return stated[-1], None
    return 1, "how many requests ran at once is not said"


def csv_metrics(page: str) -> dict[str, dict[str, Any]]:
    """The CSV's sections as the JSON has them: `Metric` with its unit, then statistics, or one value."""
    metrics: dict[str, dict[str, Any]] = {}
    head: list[str] = []
    for row in csv.reader(io.StringIO(page)):
        if not row:
            continue
        if row[0] == "Metric":
            head = row
            continue
        name, _, unit = row[0].partition(" (")
        tag = _CSV_TAGS.get(name)
        if tag is None or "Metric" not in head[:1]:
            continue
        columns = {"Value": "avg"}
        values = {columns.get(key, key): _float(cell) for key, cell in zip(head[1:], row[1:], strict=False)}
        metrics[tag] = {"unit": unit.rstrip(")"), **values}
    return metrics


def _float(cell: str) -> float | None:
    try:
        return finite(float(cell))
    except ValueError:
        return None
