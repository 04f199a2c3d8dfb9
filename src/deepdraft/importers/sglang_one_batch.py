"""`python -m sglang.bench_one_batch_server`: JSON lines, one a case (a batch of equal requests sent at once). As of
SGLang 0.5.23."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepdraft.importers.document import Document
from deepdraft.importers.field import count, known, number, one, positive, text
from deepdraft.importers.imported import Imported
from deepdraft.records import Acceptance, Reported

TOOL = "sglang bench_one_batch_server"
_UNKNOWNS = (
    "the server's version, model and settings",
    "the time of each request: only the batch as a whole is timed",
    "how far repeats lie apart: each case is run once",
)
_TRAPS = (
    "last_ttft is the time until the last request of the batch has its first token; input_throughput divides by it",
    "output_throughput counts the tokens that came before the last first token, but not their time: it is left out "
    "and the time a token taken from latency and last_ttft",
    "acc_length is the server's average since its last flush; the tool flushes before each case",
    "prompts are random token ids unless a data set was named: a drafter does not see natural text",
)


def recognises(document: Document) -> bool:
    """By the fields that only this tool writes together."""
    return _is_case(document.first)


def read(document: Document) -> Imported:
    """One point a case."""
    lines, losses = [], []
    for place, case in enumerate(document.objects, start=1):
        line = _line(case) if _is_case(case) else None
        if line is None:
            losses.append(f"case {place} lacks its lengths or times")
        else:
            lines.append(line)
    return Imported(
        tool=TOOL,
        lines=tuple(lines),
        engine="sglang",
        speculation="yes" if any(line.acceptance is not None for line in lines) else "unknown",
        text="unknown",
        unknowns=_UNKNOWNS,
        traps=_TRAPS,
        losses=tuple(losses),
    )


def _is_case(case: Mapping[str, Any]) -> bool:
    return {"batch_size", "input_len", "last_ttft", "overall_throughput"} <= case.keys()


def _line(case: Mapping[str, Any]) -> Reported | None:
    batch, input_len, output_len = (count(case, name, 1) for name in ("batch_size", "input_len", "output_len"))
    latency, last_ttft = positive(case, "latency"), positive(case, "last_ttft")
    if batch is None or input_len is None or output_len is None or latency is None or last_ttft is None:
        return None
    total = count(case, "total_output_tokens", 1)
    acc_length, hit_rate = number(case, "acc_length"), number(case, "cache_hit_rate")
    acceptance = None
    if acc_length is not None and acc_length >= 1:
        acceptance = Acceptance(
            source="avg_spec_accept_length of /server_info after the case, by the tool",
            stated_acceptance_len=acc_length,
            doubt="an average since the last flush, moved only every --decode-log-interval steps",
        )
    is_one = batch == 1
    decode_s = latency - last_ttft
    figures = known(
        {
            "ttft_s": one(last_ttft, None, definition=None if is_one else "until the last request's first token"),
            "tpot_s": one(
                decode_s / (output_len - 1) if output_len > 1 and decode_s > 0 else None,
                None,
                definition="(latency - last_ttft) / (output tokens - 1)",
                doubt=None
                if is_one
                else "requests that had their first token earlier were decoding before this time",
            ),
            "acceptance_len": one(
                acc_length if acceptance else None,
                "mean",
                doubt="an average since the last flush, moved only every --decode-log-interval steps",
            ),
            "e2el_s": one(latency, None, definition=None if is_one else "until the last request ended"),
            "output_tok_s": one(total / latency if total else None, None),
            "total_tok_s": one(positive(case, "overall_throughput"), None),
        }
    )
    num_early = count(case, "num_early_stopped", 1)
    return Reported(
        context_len=input_len,
        concurrency=batch,
        decode_len=output_len,
        figures=figures,
        acceptance=acceptance,
        is_cold=None if hit_rate is None else hit_rate <= 0.01,
        workload=text(case, "run_name"),
        remarks=(f"{num_early} of {batch} requests stopped early",) if num_early else (),
    )
