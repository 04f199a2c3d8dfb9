"""The figures of one sample: one request, or one pair of the two-point method. Names are those of the catalogue
(`figure`), values are in its units; a figure that can't be known is absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deepdraft.metrics.event import answer_ttft_s, e2el_s, ttft_s
from deepdraft.metrics.prompt import cached_tokens, prompt_tokens, uncached_prompt_tokens
from deepdraft.metrics.server import (
    server_decode_tok_s,
    server_figures_source,
    server_prefill_s,
    server_prefill_tok_s,
)
from deepdraft.metrics.speculation import acceptance_len, request_tokens_per_step, step_s
from deepdraft.metrics.step_parts import step_parts_s
from deepdraft.metrics.timing import (
    decode_tok_s,
    e2el_from_scheduled_s,
    itl_s,
    tpot_s,
    ttft_from_scheduled_s,
)
from deepdraft.metrics.tokens import event_tokens, output_tokens
from deepdraft.metrics.two_point import Pair, two_point_tpot_s, two_point_ttft_s
from deepdraft.records import Acceptance, Measurement, RequestTrace, Ternary


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request's or one pair's figures."""

    trial_id: str
    repeat_index: int | None
    """None when the trial was cut short."""
    request: Measurement
    """The request; of a pair, the second."""
    first: Measurement | None
    """The first request of a pair."""
    figures: Mapping[str, float]
    sources: Mapping[str, str]
    """Where a figure comes from, for those where it matters."""


def request_sample(
    request: Measurement, *, acceptance: Acceptance | None, speculation: Ternary, repeat_index: int | None
) -> Sample:
    """The figures of one streamed request. `acceptance` is the best source for this very request."""
    trace = request.trace
    collected = _Collected()
    collected.add("ttft_s", ttft_s(trace))
    collected.add("answer_ttft_s", answer_ttft_s(trace))
    collected.add("tpot_s", tpot_s(trace), _tokens_source(trace))
    collected.add("itl_s", itl_s(trace), _tokens_source(trace))
    collected.add("decode_tok_s", decode_tok_s(trace), _tokens_source(trace))
    _add_shared(collected, request, acceptance, speculation, ttft=ttft_s(trace), tpot=None)
    return collected.sample(request, None, repeat_index)


def pair_sample(
    pair: Pair, *, acceptance: Acceptance | None, speculation: Ternary, repeat_index: int | None
) -> Sample:
    """The figures of one pair that is not refused. Events are timed for speculation only."""
    ttft, tpot = two_point_ttft_s(pair), two_point_tpot_s(pair)
    source = f"two-point: {output_tokens(pair.first.trace)} and {output_tokens(pair.second.trace)} tokens"
    collected = _Collected()
    collected.add("ttft_s", ttft, "two-point: latency of the request with 1 token")
    collected.add("tpot_s", tpot, source)
    collected.add("decode_tok_s", 1 / tpot if tpot else None, source)
    _add_shared(collected, pair.second, acceptance, speculation, ttft=ttft, tpot=tpot)
    return collected.sample(pair.second, pair.first, repeat_index)


class _Collected:
    """Figures on their way into a sample: what is None is left out."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.sources: dict[str, str] = {}

    def add(self, name: str, value: float | None, source: str | None = None) -> None:
        if value is None:
            return
        self.figures[name] = value
        if source is not None:
            self.sources[name] = source

    def sample(self, request: Measurement, first: Measurement | None, repeat_index: int | None) -> Sample:
        return Sample(
            trial_id=request.trial_id,
            repeat_index=repeat_index,
            request=request,
            first=first,
            figures=self.figures,
            sources=self.sources,
        )


def _add_shared(
    collected: _Collected,
    request: Measurement,
    acceptance: Acceptance | None,
    speculation: Ternary,
    *,
    ttft: float | None,
    tpot: float | None,
) -> None:
    trace = request.trace
    collected.add("e2el_s", e2el_s(trace))
    collected.add("ttft_from_scheduled_s", ttft_from_scheduled_s(request))
    collected.add("e2el_from_scheduled_s", e2el_from_scheduled_s(request))
    uncached, source = prefill_len(request)
    if ttft is not None and ttft > 0 and uncached:
        collected.add("prefill_tok_s", uncached / ttft, source)
    engine = server_figures_source(trace)
    collected.add("server_prefill_s", server_prefill_s(trace), engine)
    collected.add("server_prefill_tok_s", server_prefill_tok_s(trace), engine)
    collected.add("server_decode_tok_s", server_decode_tok_s(trace), engine)
    per_step = request_tokens_per_step(trace, acceptance, speculation)
    if per_step is not None:
        collected.add("tokens_per_step", per_step.value, per_step.source)
    step = step_s(trace, acceptance, speculation, tpot)
    if step is not None:
        collected.add("step_s", step.value, step.source)
    if acceptance is not None:
        length = acceptance_len(acceptance, output_tokens(trace))
        if length is not None:
            collected.add("acceptance_len", length.value, length.source)
        num_output_tokens = output_tokens(trace)
        parts = step_parts_s(acceptance, num_output_tokens) if num_output_tokens is not None else {}
        for name, seconds in parts.items():
            collected.add(f"step_{name}_s", seconds, acceptance.source)


def prefill_len(request: Measurement) -> tuple[int | None, str]:
    """Prompt tokens that had to be computed, and how they were counted.

    Where the server counts no prompt tokens, what we expect it to have counted takes their place; where it tells no
    cached tokens, all are taken as uncached.
    """
    uncached = uncached_prompt_tokens(request.trace)
    if uncached is None:
        counted_by = request.prompt.count_source or "us"
        return request.prompt.expected_len, f"prompt counted by {counted_by}, the server does not say; / TTFT"
    if cached_tokens(request.trace) is None:
        return uncached, "cached tokens not told, all prompt tokens taken as uncached; / TTFT"
    return uncached, "uncached prompt tokens by the server / TTFT"


def actual_prompt_len(request: Measurement) -> tuple[int, str]:
    """The length of the prompt, best source first: the server's count, ours, what was asked."""
    counted = prompt_tokens(request.trace)
    if counted is not None:
        return counted, "the server"
    if request.prompt.expected_len is not None:
        return request.prompt.expected_len, request.prompt.count_source or "our own count"
    return request.prompt.asked_len, "as asked, nobody counted"


def _tokens_source(trace: RequestTrace) -> str:
    counted = event_tokens(trace)
    source = counted.source or "not counted"
    return source if counted.is_exact else f"{source} (estimated)"
