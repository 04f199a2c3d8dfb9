"""`python -m sglang.bench_serving`: JSON lines, one a run. As of SGLang 0.5.23 and 0.5.12."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepdraft.adapters.sglang import sglang_capabilities
from deepdraft.importers.document import Document
from deepdraft.importers.field import count, entries, file_name, finite, known, number, one, part, positive, text
from deepdraft.importers.imported import Imported
from deepdraft.importers.serving import (
    BUCKETS,
    failed_remarks,
    latency_figures,
    lengths,
    requests_of,
    throughput_figures,
)
from deepdraft.records import Acceptance, Capabilities, Reported

TOOL = "sglang bench_serving"
NATIVE_BACKENDS = ("sglang", "sglang-native", "sglang-embedding")
_REQUESTED = "output tokens are those that were requested: the tool asks for no usage on this route"
_UNKNOWNS = ("whether prompts were served from a prefix cache, unless --cache-report was given",)
_TRAPS = (
    "the seed is fixed and a warm-up repeats the first prompt: a second run may hit the prefix cache (18 times too "
    "small a TTFT in one check) unless --flush-cache was given",
    "accept_length is the server's average over its life, warm-ups included, not of this run",
    "on OpenAI routes the output length is the requested one; an error inside a stream counts as a success with it",
    "every request opens a connection of its own, whose time is in TTFT",
    "the end of a request is its last chunk of any kind",
    BUCKETS,
)


def recognises(document: Document) -> bool:
    """By the fields that only this tool writes together."""
    return _is_result(document.first)


def read(document: Document) -> Imported:
    """One point a line."""
    lines, losses = [], []
    for place, result in enumerate(document.objects, start=1):
        line = _line(result) if _is_result(result) else None
        if line is None:
            losses.append(f"result {place} has no successful request, or is no result of {TOOL}")
        else:
            lines.append(line)
    first = document.first
    server = _server(part(first, "server_info"))
    rate = number(first, "request_rate")
    return Imported(
        tool=TOOL,
        lines=tuple(lines),
        engine=server.engine,
        engine_version=server.version,
        model=file_name(server.model),
        tokenizer=file_name(server.tokenizer),
        speculation=server.speculation,
        speculation_method=server.speculation_method,
        max_context_len=server.max_context_len,
        kv_pool_tokens=server.kv_pool_tokens,
        page_size=server.page_size,
        num_slots=server.num_slots,
        settings=server.settings,
        doubts=server.doubts,
        arrival=f"poisson:{rate:g}" if rate else "closed",
        text=text(first, "dataset_name") or "unknown",
        unknowns=_UNKNOWNS,
        traps=_TRAPS,
        losses=tuple(losses),
    )


def _is_result(result: Mapping[str, Any]) -> bool:
    return {"total_output_tokens_retokenized", "median_ttft_ms", "completed"} <= result.keys()


def _server(info: Mapping[str, Any]) -> Capabilities:
    """What the embedded /server_info says; paths of the machine and secrets stay behind."""
    if not info:
        return Capabilities(engine="unknown", detected_by="not said")
    return sglang_capabilities(Capabilities(engine="sglang", detected_by=f"named by {TOOL}"), info)


def _line(result: Mapping[str, Any]) -> Reported | None:
    if not count(result, "completed", 1):
        return None
    requests = requests_of(result)
    prompt_len, output_len, remarks = lengths(result, requests)
    if prompt_len is None:
        return None
    remarks = (*remarks, "prompt tokens as the client's tokenizer counts them")
    figures = latency_figures(result, requests, tpot_doubt=_tpot_doubt(result))
    figures |= throughput_figures(result, "total_throughput")
    e2el = one(
        positive(result, "median_e2e_latency_ms"), "median", num_samples=count(result, "completed", 1), factor=1e-3
    )
    accept_len = number(result, "accept_length")
    acceptance = None
    if accept_len is not None and accept_len >= 1:
        acceptance = Acceptance(
            source="avg_spec_accept_length of /server_info, by the tool",
            stated_acceptance_len=accept_len,
            is_lifetime_average=True,
        )
    figures |= known(
        {
            "e2el_s": e2el,
            "mean_concurrency": one(positive(result, "concurrency"), None),
            "acceptance_len": one(
                accept_len if acceptance else None,
                "mean",
                definition="an average over the server's life, not of this request",
                doubt="the server's average over its life, not of this run",
            ),
        }
    )
    num_at_once = count(result, "max_concurrency", 1)
    if num_at_once is None:
        num_at_once = max(1, round(number(result, "concurrency") or 1))
        remarks = (*remarks, "no limit on concurrency; the mean is taken")
    return Reported(
        asked_context_len=prompt_len,
        concurrency=num_at_once,
        decode_len=output_len,
        figures=figures,
        acceptance=acceptance,
        is_cold=_is_cold(result),
        workload=text(result, "dataset_name"),
        remarks=remarks + failed_remarks(result),
    )


def _tpot_doubt(result: Mapping[str, Any]) -> str | None:
    if text(result, "backend") in NATIVE_BACKENDS:
        return None
    retokenized, total = number(result, "total_output_tokens_retokenized"), number(result, "total_output_tokens")
    if not retokenized or not total:
        return _REQUESTED
    return f"{_REQUESTED}; the text of the answers has {retokenized / total:.0%} of them"


def _is_cold(result: Mapping[str, Any]) -> bool | None:
    """By --cache-report, which native and sglext answers feed; without it nothing is known. The tool's own 0 stands
    for "not told" on other routes, so there only a hit is believed."""
    cached = count(part(result, "cache_report"), "total_cached_tokens")
    if cached is None:
        each = [finite(value) for value in entries(result, "cached_tokens")]
        cached = sum(int(value) for value in each if value is not None) if each else None
    if cached is None:
        return None
    total = number(result, "total_input_tokens") or 0
    is_hit = cached > 0.01 * total
    return False if is_hit else True if text(result, "backend") in NATIVE_BACKENDS else None
