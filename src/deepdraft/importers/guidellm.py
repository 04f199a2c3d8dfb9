"""guidellm's `benchmarks.json`: one object with a list of benchmarks, each with its requests. As of 0.8.1; reports of
schema 1 (before 0.5) have other names and are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deepdraft.errors import ResultsError
from deepdraft.importers.document import Document
from deepdraft.importers.field import (
    count,
    counted,
    entries,
    file_name,
    known,
    middle,
    number,
    one,
    part,
    samples,
    text,
)
from deepdraft.importers.imported import Imported
from deepdraft.records import Acceptance, Reported, ReportedFigure

TOOL = "guidellm"
_SCHEMA = 2
_UNKNOWNS = (
    "when each chunk came: only the first, the last and how many are kept, so no stall or burst can be seen",
    "the server's version and settings",
)
_TRAPS = (
    "its time_per_output_token_ms is latency / tokens and holds the TTFT; inter_token_latency_ms is taken instead",
    "inter_token_latency_ms divides by all tokens but one, also where the first chunk held several",
    "prompts come from a fixed seed: a second run sends the same ones and may hit the prefix cache (18 times too "
    "small a TTFT in one check)",
    "times are those of the wall clock, and the start is stamped when the request's header is written",
)
_TPOT = "(last token - first token) / (output tokens - 1)"


def recognises(document: Document) -> bool:
    """By the metadata and the benchmarks' shape."""
    first = document.first
    return "guidellm_version" in part(first, "metadata") and isinstance(first.get("benchmarks"), list)


def read(document: Document) -> Imported:
    """One point a benchmark. Raises ResultsError for a report of another schema."""
    report = document.first
    metadata = part(report, "metadata")
    schema = count(metadata, "version")
    if schema != _SCHEMA:
        raise ResultsError(
            f"{document.name} is a {TOOL} report of schema {schema}; this Deepdraft reads {_SCHEMA}",
            hint="upgrade deepdraft" if (schema or 0) > _SCHEMA else "write it again with a newer guidellm",
        )
    lines, losses = [], []
    for place, benchmark in enumerate(entries(report, "benchmarks"), start=1):
        line = _line(benchmark) if isinstance(benchmark, dict) else None
        if line is None:
            losses.append(f"benchmark {place} has no successful request")
        else:
            lines.append(line)
    strategy = part((entries(report, "benchmarks") or [{}])[0], "config", "strategy")
    rate = number(strategy, "rate")
    kind = text(strategy, "type_")
    return Imported(
        tool=TOOL,
        version=text(metadata, "guidellm_version"),
        lines=tuple(lines),
        model=file_name(text(part(report, "config", "spec", "backend"), "model")),
        arrival=f"{kind}:{rate:g}" if rate and kind in ("constant", "poisson") else "closed",
        speculation="yes" if any(line.acceptance is not None for line in lines) else "unknown",
        unknowns=_UNKNOWNS,
        traps=_TRAPS,
        losses=tuple(losses),
    )


def _line(benchmark: Mapping[str, Any]) -> Reported | None:
    requests = [one for one in entries(part(benchmark, "requests"), "successful") if isinstance(one, dict)]
    metrics = part(benchmark, "metrics")
    figures = _request_figures(requests) if requests else _summary_figures(metrics)
    figures |= known(
        {
            "output_tok_s": one(_statistic(metrics, "output_tokens_per_second", "mean"), "mean over time"),
            "mean_concurrency": one(_statistic(metrics, "request_concurrency", "mean"), "mean over time"),
        }
    )
    prompt_len = middle([number(request, "prompt_tokens") for request in requests])
    if prompt_len is None:
        prompt_len = round(_statistic(metrics, "prompt_token_count", "median") or 0)
    if not prompt_len or not figures:
        return None
    num_at_once, arrival = _strategy(part(benchmark, "config", "strategy"), metrics)
    totals = part(metrics, "request_totals")
    num_bad = (count(totals, "errored") or 0) + (count(totals, "incomplete") or 0)
    warnings = [text(warning, "message") for warning in entries(benchmark, "warnings")]
    return Reported(
        context_len=prompt_len,
        concurrency=num_at_once,
        decode_len=middle([number(request, "output_tokens") for request in requests]),
        figures=figures,
        acceptance=_acceptance(requests),
        is_cold=_is_cold(requests),
        remarks=(
            *((arrival,) if arrival else ()),
            *((f"{counted(num_bad, 'request')} failed or cut short: they take no part",) if num_bad else ()),
            *(words for words in warnings if words),
        ),
    )


def _request_figures(requests: Sequence[Mapping[str, Any]]) -> dict[str, ReportedFigure]:
    num_tokens = [number(request, "output_tokens_per_iteration") for request in requests]
    bundled = any(value is not None and value > 1.02 for value in num_tokens)
    doubt = "chunks held several tokens: those of the first one are in the divisor but not in the time"
    return known(
        {
            "ttft_s": samples(_values(requests, "time_to_first_token_ms"), factor=1e-3),
            "tpot_s": samples(
                _values(requests, "inter_token_latency_ms"),
                factor=1e-3,
                definition=_TPOT,
                doubt=doubt if bundled else None,
            ),
            "acceptance_len": samples(_acceptance_lens(requests)),
            "e2el_s": samples(_values(requests, "request_latency")),
            "e2el_from_scheduled_s": samples(_values(requests, "request_scheduled_latency")),
        }
    )


def _summary_figures(metrics: Mapping[str, Any]) -> dict[str, ReportedFigure]:
    """Where the report was written without its requests."""
    num_ok = count(part(metrics, "request_totals"), "successful", 1)
    return known(
        {
            "ttft_s": one(
                _statistic(metrics, "time_to_first_token_ms", "median"), "median", num_samples=num_ok, factor=1e-3
            ),
            "tpot_s": one(
                _statistic(metrics, "inter_token_latency_ms", "median"),
                "median",
                num_samples=num_ok,
                factor=1e-3,
                definition=_TPOT,
                doubt="the divisor counts all tokens but one, also where the first chunk held several",
            ),
            "e2el_s": one(_statistic(metrics, "request_latency", "median"), "median", num_samples=num_ok),
        }
    )


def _values(requests: Iterable[Mapping[str, Any]], name: str) -> list[float | None]:
    return [number(request, name) for request in requests]


def _statistic(metrics: Mapping[str, Any], name: str, statistic: str) -> float | None:
    return number(part(metrics, name, "successful"), statistic)


def _strategy(strategy: Mapping[str, Any], metrics: Mapping[str, Any]) -> tuple[int, str | None]:
    """How many ran at once, and a remark where that was not what was set."""
    kind = text(strategy, "type_")
    if kind == "synchronous":
        return 1, None
    streams = count(strategy, "streams", 1)
    if streams is not None:
        return streams, None
    mean = _statistic(metrics, "request_concurrency", "mean") or 1.0
    rate = number(strategy, "rate")
    how = f"{kind or 'unknown'} arrivals" + (f" at {rate:g} requests a second" if rate else "")
    return max(1, round(mean)), f"{how}, {mean:.2f} at once on average"


def _is_cold(requests: Sequence[Mapping[str, Any]]) -> bool | None:
    cached = [number(part(request, "input_metrics"), "cached_tokens") for request in requests]
    if not cached or any(value is None for value in cached):
        return None
    prompts = sum(value or 0 for value in _values(requests, "prompt_tokens"))
    return sum(value or 0 for value in cached) <= 0.01 * prompts


def _acceptance_lens(requests: Sequence[Mapping[str, Any]]) -> list[float | None]:
    return [
        number(part(one, "response_metrics", "speculative_decoding"), "mean_acceptance_length") for one in requests
    ]


def _acceptance(requests: Sequence[Mapping[str, Any]]) -> Acceptance | None:
    """From vLLM's per-request metrics where the report passed them through for every request."""
    each = [part(request, "response_metrics", "speculative_decoding") for request in requests]
    steps = [count(own, "num_spec_steps") for own in each]
    accepted = [count(own, "num_accepted_draft_tokens") for own in each]
    drafted = [count(own, "num_draft_tokens") for own in each]
    if not each or None in steps or None in accepted:
        return None
    return Acceptance(
        source="vLLM's metrics of each answer, summed",
        num_steps=sum(value or 0 for value in steps),
        num_accepted_tokens=sum(value or 0 for value in accepted),
        num_draft_tokens=None if None in drafted else sum(value or 0 for value in drafted),
    )
