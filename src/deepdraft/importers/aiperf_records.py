"""aiperf's `profile_export.jsonl`: one record a request, with the gaps between its chunks and the server's usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepdraft.importers.aiperf_metric import BY_USAGE, ITL, ITL_DOUBT, UNIT_S, answer_len, prompt_len, seconds
from deepdraft.importers.field import count, counted, entries, finite, known, middle, number, part, samples, text
from deepdraft.importers.serving import BUNDLED
from deepdraft.records import Acceptance, Reported


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether the object is one of these records."""
    return "request_start_ns" in part(record, "metadata") and isinstance(record.get("metrics"), dict)


def records_line(records: Sequence[Mapping[str, Any]]) -> tuple[Reported | None, list[str]]:
    """One value a request; records with an error and those of the warm-up take no part."""
    kept_records = [
        record
        for record in records
        if is_record(record)
        and not record.get("error")
        and text(part(record, "metadata"), "benchmark_phase") in (None, "profiling")
    ]
    num_left_out = len(records) - len(kept_records)
    losses = [f"{counted(num_left_out, 'record')} failed, or of the warm-up"] if num_left_out else []
    requests = [part(record, "metrics") for record in kept_records]
    tpots = [_tpot_s(metrics) for metrics in requests]
    figures = {
        "ttft_s": samples(seconds(part(metrics, "time_to_first_token"), "value") for metrics in requests),
        "tpot_s": samples(tpots, definition=BY_USAGE, doubt=BUNDLED if any(map(_is_bundled, requests)) else None)
        if any(tpots)
        else samples(
            (seconds(part(metrics, "inter_token_latency"), "value") for metrics in requests),
            definition=ITL,
            doubt=ITL_DOUBT,
        ),
        "e2el_s": samples(seconds(part(metrics, "request_latency"), "value") for metrics in requests),
        "acceptance_len": samples(
            number(part(record, "spec_decode_acceptance"), "mean_acceptance_length") for record in kept_records
        ),
    }
    prompts = [prompt_len(metrics, "value") for metrics in requests]
    cached = [number(part(metrics, "usage_prompt_cache_read_tokens"), "value") for metrics in requests]
    middle_len = middle(prompts)
    kept = known(figures)
    if middle_len is None or not kept:
        return None, losses
    line = Reported(
        context_len=middle_len,
        concurrency=_most_at_once([part(record, "metadata") for record in kept_records]),
        decode_len=middle([answer_len(metrics, "value") for metrics in requests]),
        figures=kept,
        acceptance=_acceptance(kept_records),
        is_cold=_is_cold(cached, prompts),
    )
    return line, losses


def _tpot_s(metrics: Mapping[str, Any]) -> float | None:
    """From the gaps between chunks and the server's count of tokens, where the record has both."""
    num_tokens = count(part(metrics, "usage_completion_tokens"), "value", 2)
    gaps = [finite(gap) for gap in entries(part(metrics, "inter_chunk_latency"), "value")]
    factor = UNIT_S.get(text(part(metrics, "inter_chunk_latency"), "unit") or "")
    if num_tokens is None or not gaps or factor is None:
        return None
    return sum(gap or 0.0 for gap in gaps) * factor / (num_tokens - 1)


def _is_bundled(metrics: Mapping[str, Any]) -> bool:
    """Whether there were fewer chunks than tokens."""
    num_tokens = count(part(metrics, "usage_completion_tokens"), "value", 2)
    return num_tokens is not None and len(entries(part(metrics, "inter_chunk_latency"), "value")) + 1 < num_tokens


def _most_at_once(metadata: Sequence[Mapping[str, Any]]) -> int:
    """Requests in flight at the peak, exactly, from when each started and ended."""
    moments = []
    for request in metadata:
        start, end = number(request, "request_start_ns"), number(request, "request_end_ns")
        if start is not None and end is not None:
            moments += [(start, 1), (end, -1)]
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return max(most, 1)


def _is_cold(cached: Sequence[float | None], prompts: Sequence[float | None]) -> bool | None:
    if not cached or any(value is None for value in cached):
        return None
    return sum(value or 0 for value in cached) <= 0.01 * sum(value or 0 for value in prompts)


def _acceptance(records: Sequence[Mapping[str, Any]]) -> Acceptance | None:
    each = [part(record, "spec_decode_acceptance") for record in records if not record.get("error")]
    histograms = [part(own, "acceptance_histogram") for own in each]
    if not each or not all(histograms):
        return None
    totals: dict[int, int] = {}
    for histogram in histograms:
        for length, steps in histogram.items():
            if length.isdigit() and finite(steps) is not None:
                totals[int(length)] = totals.get(int(length), 0) + int(steps)
    by_len = tuple(totals.get(length, 0) for length in range(max(totals, default=0) + 1))
    accepted = [count(own, "num_accepted_draft_tokens") for own in each]
    return Acceptance(
        source="the engine's per-request acceptance, summed by us",
        num_accepted_tokens=None if None in accepted else sum(value or 0 for value in accepted),
        accepted_len_histogram=by_len,
    )
