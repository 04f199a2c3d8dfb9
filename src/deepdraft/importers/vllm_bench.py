"""`vllm bench serve --save-result`: one JSON object a run, or one a line with --append-result. As of vLLM 0.32.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepdraft.importers.document import Document
from deepdraft.importers.field import count, entries, file_name, finite, known, number, one, positive, text
from deepdraft.importers.imported import Imported
from deepdraft.importers.serving import (
    BUCKETS,
    failed_remarks,
    latency_figures,
    lengths,
    requests_of,
    throughput_figures,
)
from deepdraft.records import Acceptance, Reported

TOOL = "vllm bench serve"
_UNKNOWNS = (
    "whether prompts were served from a prefix cache",
    "the server's version and settings",
    "whether prompt tokens were counted by the server (usage) or by the client's tokenizer",
)
_TRAPS = (
    "the seed is fixed: a second run sends the same prompts, and a warm-up repeats the first one, so TTFT may be "
    "that of a prefix-cache hit (18 times too small in one check)",
    "TTFT is the first chunk with a choice, also one that holds only a role: too small where that comes early",
    "the end of a request is its last chunk of any kind, so a late usage chunk is in the time a token of summaries",
    BUCKETS,
    "prompts are decoded and encoded again, so their length drifts from what was asked",
)


def recognises(document: Document) -> bool:
    """By the fields that only this tool writes together."""
    return _is_result(document.first)


def read(document: Document) -> Imported:
    """One point an object. Raises nothing for a damaged one: it is named as lost."""
    lines, losses = [], []
    for number_in_file, result in enumerate(document.objects, start=1):
        line = _line(result) if _is_result(result) else None
        if line is None:
            losses.append(f"result {number_in_file} has no successful request, or is no result of {TOOL}")
        else:
            lines.append(line)
    first = document.first
    is_speculating = any(line.acceptance is not None for line in lines)
    rate = number(first, "request_rate")
    return Imported(
        tool=TOOL,
        lines=tuple(lines),
        engine="vllm" if text(first, "backend") in ("vllm", "openai", "openai-chat", None) else "unknown",
        model=file_name(text(first, "model_id")),
        tokenizer=file_name(text(first, "tokenizer_id")),
        speculation="yes" if is_speculating else "unknown",
        measured_at=text(first, "date"),
        arrival=f"poisson:{rate:g}" if rate else "closed",
        unknowns=_UNKNOWNS,
        traps=_TRAPS,
        losses=tuple(losses),
    )


def _is_result(result: Mapping[str, Any]) -> bool:
    return "total_token_throughput" in result and "num_prompts" in result and "completed" in result


def _line(result: Mapping[str, Any]) -> Reported | None:
    if not count(result, "completed", 1):
        return None
    requests = requests_of(result)
    prompt_len, output_len, remarks = lengths(result, requests)
    if prompt_len is None:
        return None
    num_at_once = count(result, "max_concurrency", 1)
    if num_at_once is None:
        num_at_once, remarks = _unlimited(result, remarks)
    acceptance = _acceptance(result)
    figures = latency_figures(result, requests) | throughput_figures(result, "total_token_throughput")
    figures |= known({"e2el_s": _e2el(result)})
    if acceptance is not None:
        figures |= known({"acceptance_len": one(positive(result, "spec_decode_acceptance_length"), "mean")})
    return Reported(
        context_len=prompt_len,
        concurrency=num_at_once,
        decode_len=output_len,
        figures=figures,
        acceptance=acceptance,
        workload=text(result, "dataset_name") or text(result, "label"),
        remarks=remarks + failed_remarks(result),
    )


def _unlimited(result: Mapping[str, Any], remarks: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Without --max-concurrency: all at once when the rate is infinite, else as many as there were on average."""
    rate, num_prompts = number(result, "request_rate"), count(result, "num_prompts", 1) or 1
    if rate is None:
        return num_prompts, (*remarks, "no limit on concurrency: all prompts were sent at once")
    latencies = [value for value in map(finite, entries(result, "latencies")) if value is not None]
    duration = positive(result, "duration")
    mean = sum(latencies) / duration if latencies and duration else None
    if mean is None:
        return 1, (*remarks, f"open loop at {rate:g} requests a second; how many ran at once is not said")
    return max(1, round(mean)), (*remarks, f"open loop at {rate:g} requests a second, {mean:.2f} at once on average")


def _e2el(result: Mapping[str, Any]) -> Any:
    statistic = "median" if positive(result, "median_e2el_ms") else "mean"
    value = positive(result, f"{statistic}_e2el_ms")
    return one(value, statistic, num_samples=count(result, "completed", 1), factor=1e-3)


def _acceptance(result: Mapping[str, Any]) -> Acceptance | None:
    """Counter differences around the run; they hold its warm-ups and other clients' requests as well."""
    drafts = count(result, "spec_decode_num_drafts", 1)
    if drafts is None:
        return None
    rates = [finite(rate) for rate in entries(result, "spec_decode_per_position_acceptance_rates")]
    return Acceptance(
        source="/metrics before and after the run, by the tool",
        num_steps=drafts,
        num_draft_tokens=count(result, "spec_decode_draft_tokens"),
        num_accepted_tokens=count(result, "spec_decode_accepted_tokens"),
        accepted_at_depth=tuple(round(rate * drafts) for rate in rates if rate is not None) or None,
        doubt="counts everything the server ran meanwhile",
    )
