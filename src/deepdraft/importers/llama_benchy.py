"""`llama-benchy --format json`: one object, with a list of benchmarks at depth, prompt and answer lengths. As of
0.4.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepdraft.importers.document import Document
from deepdraft.importers.field import count, entries, file_name, known, number, numbers, one, part, samples, text
from deepdraft.importers.imported import Imported
from deepdraft.records import Reported, ReportedFigure

TOOL = "llama-benchy"
_UNKNOWNS = (
    "the actual prompt length: the server's count is used only where it is within 20 % of the expected one, and is "
    "not written down",
    "whether prompts were served from a prefix cache: cached tokens are never read",
    "how many requests failed: they are printed and then left out",
    "the server's version and settings, and whether a drafter is active",
)
_TRAPS = (
    "prefill tokens a second divide by the time to the first chunk of any kind, also one that holds only a role: "
    "left out where the time to the first token says otherwise",
    "without token ids from the server the answer's tokens are spread evenly over its time, so the tokens of the "
    "first chunk flatter the decode rate",
    "--no-cache puts its nonce at the end of the prompt, where it defeats no prefix cache",
    "an error object inside a stream counts as a success",
    "the tokenizer falls back to gpt2 without a word where the model's can't be loaded",
)
_DECODE = "(tokens after the first arrival) / (last - first token), over counted or evenly spread tokens"


def recognises(document: Document) -> bool:
    """By the fields that only this tool writes together."""
    first = document.first
    return "latency_mode" in first and isinstance(first.get("benchmarks"), list)


def read(document: Document) -> Imported:
    """One point a benchmark."""
    report = document.first
    lines, losses = [], []
    for place, benchmark in enumerate(entries(report, "benchmarks"), start=1):
        line = _line(benchmark, report) if isinstance(benchmark, dict) else None
        if line is None:
            losses.append(f"benchmark {place} has no lengths or no figures (all of its requests failed?)")
        else:
            lines.append(line)
    return Imported(
        tool=TOOL,
        version=text(report, "version"),
        lines=tuple(lines),
        model=file_name(text(report, "model")),
        measured_at=text(report, "timestamp"),
        text="a book, from a random place",
        unknowns=_UNKNOWNS,
        traps=_TRAPS,
        losses=tuple(losses),
    )


def _line(benchmark: Mapping[str, Any], report: Mapping[str, Any]) -> Reported | None:
    depth, prompt, answer = (count(benchmark, name) for name in ("context_size", "prompt_size", "response_size"))
    num_at_once = count(benchmark, "concurrency", 1) or 1
    if depth is None or prompt is None or depth + prompt < 1:
        return None
    loads_context = benchmark.get("is_context_prefill_phase") is True
    is_hit = report.get("prefix_caching_enabled") is True and depth > 0 and not loads_context
    ttfts, ttfrs = numbers(part(benchmark, "e2e_ttft"), "values"), numbers(part(benchmark, "ttfr"), "values")
    figures = {
        "ttft_s": _each(benchmark, "e2e_ttft", factor=1e-3),
        "decode_tok_s": _each(benchmark, "tg_req_throughput", definition=_DECODE),
    }
    if not is_hit and not _has_early_chunk(ttfts, ttfrs):
        latency_ms = number(report, "latency_ms") or 0.0
        figures["prefill_tok_s"] = _each(
            benchmark,
            "pp_req_throughput",
            definition=f"prompt tokens / (time to the first chunk - {latency_ms:.3g} ms of latency)",
        )
    if num_at_once > 1:
        figures["output_tok_s"] = _each(
            benchmark,
            "tg_throughput",
            definition="tokens after each first one / first token to last token of a batch",
        )
    kept = known(figures)
    if not kept:
        return None
    remarks = [f"{prompt} tokens asked after {depth} of context"] if depth else []
    if is_hit:
        remarks.append("the context was loaded by the request before: a prefix-cache hit on purpose")
    if _has_early_chunk(ttfts, ttfrs):
        remarks.append("the first chunk came well before the first token (a role): its prefill rate is left out")
    return Reported(
        asked_context_len=depth if loads_context else depth + prompt,
        concurrency=num_at_once,
        decode_len=answer,
        figures=kept,
        is_cold=False if is_hit else None,
        workload="context load" if loads_context else None,
        remarks=tuple(remarks),
    )


def _each(
    benchmark: Mapping[str, Any], name: str, *, factor: float = 1.0, definition: str | None = None
) -> ReportedFigure | None:
    metric = part(benchmark, name)
    found = samples(numbers(metric, "values"), definition=definition, factor=factor)
    return found or one(number(metric, "mean"), "mean", definition=definition, factor=factor)


def _has_early_chunk(ttfts: list[float | None], ttfrs: list[float | None]) -> bool:
    """Whether a chunk without text came so early that dividing by its time would tell of no prefill."""
    pairs = zip(ttfts, ttfrs, strict=False)
    return any(first is not None and response is not None and response < 0.95 * first for first, response in pairs)
