"""What the serving benchmarks of vLLM and SGLang have in common: one object a run, the same arrays a request.

Both define TPOT as (latency - TTFT) / (output tokens - 1), where latency ends with the last chunk of any kind, and
both count gaps between chunks as inter-token latencies. Where a file has the arrays (`--save-detailed`,
`--output-details`) the time between the first and the last chunk with text is taken instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deepdraft.importers.field import (
    count,
    counted,
    entries,
    finite,
    known,
    middle,
    number,
    numbers,
    one,
    positive,
    samples,
)
from deepdraft.records import ReportedFigure

TPOT_BY_CHUNKS = "(last chunk - first chunk) / (output tokens - 1), from the gaps between chunks"
TPOT_BY_LATENCY = "(end of the request - TTFT) / (output tokens - 1)"
BUNDLED = (
    "chunks held several tokens: those of the first chunk are in the divisor but not in the time, so the figure is "
    "too small by up to (tokens of the first chunk - 1) / (output tokens - 1)"
)
MAYBE_BUNDLED = "the divisor counts all tokens but one, also where the first chunk held several"
CHUNK_GAP = "gap between chunks, which is a step's time and not a token's once a chunk holds several tokens"
BUCKETS = (
    "peak throughput and peak concurrency are counted in one-second buckets (one stream can read as 3): left out"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One successful request of the arrays."""

    prompt_len: int | None
    output_len: int | None
    ttft_s: float | None
    gaps_s: tuple[float, ...]

    @property
    def tpot_s(self) -> float | None:
        """First to last chunk, over all tokens but one."""
        if self.output_len is None or self.output_len < 2 or not self.gaps_s:
            return None
        return sum(self.gaps_s) / (self.output_len - 1)

    @property
    def is_bundled(self) -> bool:
        """Whether there were fewer chunks than tokens."""
        return self.output_len is not None and len(self.gaps_s) + 1 < self.output_len


def requests_of(result: Mapping[str, Any]) -> tuple[Request, ...]:
    """The successful requests of the arrays; none where the file has only summaries."""
    ttfts, gaps = numbers(result, "ttfts"), entries(result, "itls")
    prompts, outputs, errors = (
        numbers(result, "input_lens"),
        numbers(result, "output_lens"),
        entries(result, "errors"),
    )
    found = []
    for index, ttft in enumerate(ttfts):
        if (index < len(errors) and errors[index]) or ttft is None or ttft <= 0:
            continue
        own = gaps[index] if index < len(gaps) and isinstance(gaps[index], list) else []
        found.append(
            Request(
                prompt_len=_whole(prompts, index),
                output_len=_whole(outputs, index),
                ttft_s=ttft,
                gaps_s=tuple(gap for gap in map(finite, own) if gap is not None),
            )
        )
    return tuple(found)


def latency_figures(
    result: Mapping[str, Any], requests: Sequence[Request], *, tpot_doubt: str | None = None
) -> dict[str, ReportedFigure]:
    """TTFT, time a token and a gap: one value a request where there are arrays, else the median (or the mean)."""
    if requests:
        doubt = tpot_doubt or (BUNDLED if any(request.is_bundled for request in requests) else None)
        tpots = [request.tpot_s for request in requests]
        return known(
            {
                "ttft_s": samples(request.ttft_s for request in requests),
                "tpot_s": samples(tpots, definition=TPOT_BY_CHUNKS, doubt=doubt),
            }
        )
    num_ok = count(result, "completed", 1)
    return known(
        {
            "ttft_s": _summary(result, "ttft_ms", num_ok),
            "tpot_s": _summary(result, "tpot_ms", num_ok, TPOT_BY_LATENCY, tpot_doubt or MAYBE_BUNDLED),
            "itl_s": _summary(result, "itl_ms", None, CHUNK_GAP, "a gap between chunks, not between tokens"),
        }
    )


def throughput_figures(result: Mapping[str, Any], total: str) -> dict[str, ReportedFigure]:
    """Output and total tokens a second of the whole run; `total` is the tool's name for the latter."""
    return known(
        {
            "output_tok_s": one(positive(result, "output_throughput"), None),
            "total_tok_s": one(positive(result, total), None),
        }
    )


def lengths(result: Mapping[str, Any], requests: Sequence[Request]) -> tuple[int | None, int | None, tuple[str, ...]]:
    """(prompt tokens, output tokens, remarks): of the middle request where there are arrays, else the mean."""
    if requests:
        prompts = [request.prompt_len for request in requests]
        outputs = [request.output_len for request in requests]
        return middle(prompts), middle(outputs), _mixed("prompts", prompts) + _mixed("answers", outputs)
    num_ok = count(result, "completed", 1)
    if num_ok is None:
        return None, None, ()
    means = [number(result, name) for name in ("total_input_tokens", "total_output_tokens")]
    prompt, output = (round(mean / num_ok) if mean else None for mean in means)
    remark = f"lengths are means over {num_ok} requests"
    return prompt, output, (remark,) if num_ok > 1 else ()


def failed_remarks(result: Mapping[str, Any]) -> tuple[str, ...]:
    """A remark when requests failed: they are in no figure."""
    errors = [error for error in entries(result, "errors") if error]
    num_failed = count(result, "failed") or len(errors)
    return (f"{counted(num_failed, 'request')} failed and take no part",) if num_failed else ()


def _summary(
    result: Mapping[str, Any],
    name: str,
    num_samples: int | None,
    definition: str | None = None,
    doubt: str | None = None,
) -> ReportedFigure | None:
    for statistic in ("median", "mean"):
        value = positive(result, f"{statistic}_{name}")
        if value is not None:
            return one(value, statistic, num_samples=num_samples, definition=definition, doubt=doubt, factor=1e-3)
    return None


def _mixed(what: str, lens: Sequence[int | None]) -> tuple[str, ...]:
    ordered = sorted(length for length in lens if length is not None)
    if not ordered or ordered[-1] <= 1.1 * ordered[0]:
        return ()
    return (f"{what} of {ordered[0]} to {ordered[-1]} tokens are one point here; the middle one names it",)


def _whole(values: Sequence[float | None], index: int) -> int | None:
    value = values[index] if index < len(values) else None
    return round(value) if value is not None and value >= 1 else None
